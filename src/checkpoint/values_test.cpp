#include "checkpoint/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace espalier::checkpoint {
namespace {

TEST(Values, Bf16RoundTripsAndRoundsToEven) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float value = float_from_bf16(static_cast<uint16_t>(bits));
        if (!std::isnan(value)) EXPECT_EQ(bf16_from_float(value), bits);
        else EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(value))));
    }
    EXPECT_EQ(bf16_from_float(1.0f + 1.0f / 256), bf16_from_float(1.0f));               // tie to even
    EXPECT_EQ(bf16_from_float(1.0f + 3.0f / 256), bf16_from_float(1.0f + 4.0f / 256));  // tie to even, upwards
}

TEST(Values, HalfAndE4m3) {
    EXPECT_EQ(float_from_f16(0x3c00), 1.0f);
    EXPECT_EQ(float_from_f16(0xc000), -2.0f);
    EXPECT_EQ(float_from_f16(0x7bff), 65504.0f);
    EXPECT_EQ(float_from_f16(0x0001), std::ldexp(1.0f, -24));
    EXPECT_TRUE(std::isinf(float_from_f16(0x7c00)));
    EXPECT_TRUE(std::isnan(float_from_f16(0x7e00)));
    EXPECT_EQ(float_from_e4m3(0x38), 1.0f);
    EXPECT_EQ(float_from_e4m3(0x7e), 448.0f);
    EXPECT_EQ(float_from_e4m3(0x01), std::ldexp(1.0f, -9));
    EXPECT_EQ(float_from_e4m3(0x88), -std::ldexp(1.0f, -6));
    EXPECT_TRUE(std::isnan(float_from_e4m3(0x7f)));
}

TEST(Values, FloatsFromUnalignedBytes) {
    const float values[] = {1.5f, -2.0f};
    std::byte bytes[9];
    std::memcpy(bytes + 1, values, 8);
    EXPECT_EQ(read_floats(Dtype::f32, std::span(bytes).subspan(1)), (std::vector<float>{1.5f, -2.0f}));
    const uint16_t halves[] = {0x3fc0, 0xc000};
    std::memcpy(bytes + 1, halves, 4);
    EXPECT_EQ(read_floats(Dtype::bf16, std::span(bytes).subspan(1, 4)), (std::vector<float>{1.5f, -2.0f}));
}

// Every BF16 maximum in a wide range: both ways in which exporters form the divisor lead back to ModelOpt's multiplier, bit for
// bit.
TEST(Values, DivisorsGiveBackTheMultiplier) {
    int n_inexact = 0;
    for (uint32_t bits = 0x3000; bits < 0x4800; ++bits) {  // 4.7e-10 .. 1.3e5
        const float maximum = float_from_bf16(static_cast<uint16_t>(bits));
        const float multiplier = maximum / 2688.0f;
        EXPECT_EQ(multiplier_from_divisor(1.0f / multiplier), multiplier) << maximum;
        EXPECT_EQ(multiplier_from_divisor(2688.0f / maximum), multiplier) << maximum;
        n_inexact += 1.0f / (1.0f / multiplier) != multiplier;
    }
    EXPECT_GT(n_inexact, 500);                              // what plain division would get wrong
    EXPECT_EQ(multiplier_from_divisor(3.0f), 1.0f / 3.0f);  // no BF16 maximum gives this divisor
}

}  // namespace
}  // namespace espalier::checkpoint
