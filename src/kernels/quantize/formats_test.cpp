#include "kernels/quantize/formats.h"

#include <gtest/gtest.h>

#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

TEST(Formats, E4m3MatchesTheGoldens) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("e4m3.json"));
    ASSERT_EQ(golden["decode"].size(), 256u);
    for (size_t code = 0; code < 256; ++code) {
        const float value = decode_e4m3(static_cast<uint8_t>(code));
        if (golden["decode"][code].is_null()) {
            EXPECT_TRUE(std::isnan(value)) << code;
        } else {
            EXPECT_EQ(value, golden["decode"][code].get<float>()) << code;
        }
    }
    for (const char* key : {"encode_ties", "encode_saturating"}) {
        for (const Json& pair : golden[key]) {
            EXPECT_EQ(encode_e4m3(pair[0].get<float>()), pair[1].get<int>()) << pair[0].get<float>();
        }
    }
}

TEST(Formats, E2m1MatchesTheGoldens) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("e2m1.json"));
    for (size_t code = 0; code < 16; ++code) {
        EXPECT_EQ(decode_e2m1(static_cast<uint8_t>(code)), golden["values"][code].get<float>()) << code;
    }
    for (const Json& pair : golden["encode"]) {
        EXPECT_EQ(encode_e2m1(pair[0].get<float>()), pair[1].get<int>()) << pair[0].get<float>();
    }
}

TEST(Formats, HalfsDecode) {
    EXPECT_EQ(decode_f16(0x3c00), 1.0f);
    EXPECT_EQ(decode_f16(0xc000), -2.0f);
    EXPECT_EQ(decode_f16(0x7bff), 65504.0f);
    EXPECT_EQ(decode_f16(0x0001), 0x1p-24f);
    EXPECT_EQ(decode_f16(0x7c00), INFINITY);
    EXPECT_TRUE(std::isnan(decode_f16(0x7e00)));
}

}  // namespace
}  // namespace espalier::kernels
