#include "quant/weight_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "kernels/quantize/formats.h"

namespace espalier::quant {
namespace {

// ModelOpt's result for an 8 x 64 BF16 weight.
TEST(Nvfp4Weights, AreModelOpts) {
    const std::string path = ESPALIER_SOURCE_DIR "/tests/golden/units/nvfp4_weight.json";
    const Json golden = std::move(*parse_json(*read_file(path, 1 << 20), path));
    std::vector<float> all;
    for (const Json& row : golden["weight"])
        for (const Json& x : row) all.push_back(x.get<float>());
    ASSERT_EQ(all.size(), 8u * 64u);
    const float second = nvfp4_second_scale(largest_magnitude(all.data(), static_cast<int64_t>(all.size())));
    EXPECT_EQ(second, golden["weight_scale_2"].get<float>());
    for (size_t row = 0; row < 8; ++row) {
        std::vector<uint8_t> scales(4);
        std::vector<uint8_t> codes(32);
        quantize_nvfp4_row(all.data() + row * 64, 64, second, scales.data(), codes.data());
        EXPECT_EQ(scales, golden["scale_bytes"][row].get<std::vector<uint8_t>>()) << row;
        EXPECT_EQ(codes, golden["packed"][row].get<std::vector<uint8_t>>()) << row;
    }
}

TEST(Nvfp4Weights, BlockOfZerosHasScaleOneAndTinyBlocksTheSmallestScale) {
    std::vector<float> row(32, 0.0f);
    row[16] = 1e-9f;
    uint8_t scales[2];
    uint8_t codes[16];
    quantize_nvfp4_row(row.data(), 32, 1.0f, scales, codes);
    EXPECT_EQ(kernels::decode_e4m3(scales[0]), 1.0f);
    EXPECT_EQ(kernels::decode_e4m3(scales[1]), 0x1p-9f);
    for (const uint8_t code : codes) EXPECT_EQ(code, 0);
}

TEST(Nvfp4Weights, LargestValueOfTheTensorIsExactlyRepresented) {
    std::vector<float> row(16, 0.1f);
    row[5] = -3.25f;
    const float second = nvfp4_second_scale(3.25f);
    uint8_t scale;
    uint8_t codes[8];
    quantize_nvfp4_row(row.data(), 16, second, &scale, codes);
    EXPECT_EQ(kernels::decode_e4m3(scale), 448.0f);
    EXPECT_EQ(codes[2] >> 4, 15);  // -6, k = 5 is the high nibble of byte 2
}

TEST(Scales, AreAboveZeroForZeros) {
    EXPECT_EQ(nvfp4_second_scale(0.0f), 1.0f);
    EXPECT_EQ(fp8_scale(0.0f), 1.0f);
    EXPECT_EQ(nvfp4_second_scale(2688.0f), 1.0f);
    EXPECT_EQ(fp8_scale(896.0f), 2.0f);
    EXPECT_GT(kernels::decode_bf16(fp8_block_scale(0.0f)), 0.0f);
}

TEST(Fp8Weights, RoundToNearestAndSaturate) {
    const std::vector<float> row = {0.0f, -1.0f, 1.0f, 1000.0f, -1e30f, 17.0f, 18.0f};
    std::vector<uint8_t> codes(row.size());
    quantize_fp8_row(row.data(), static_cast<int64_t>(row.size()), 0.5f, Quotient::exact, codes.data());
    const std::vector<float> expected = {0.0f, -2.0f, 2.0f, 448.0f, -448.0f, 32.0f, 36.0f};  // 34 ties to the even 32
    for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(kernels::decode_e4m3(codes[i]), expected[i]) << i;
}

TEST(Fp8Weights, QuotientsOfBf16WeightsAreRoundedTwice) {
    // 17.02 is above the tie of 16 and 18 and would go up; as BF16 it is 17 and goes to the even 16.
    const float x = 17.02f;
    uint8_t exact;
    uint8_t twice;
    quantize_fp8_row(&x, 1, 1.0f, Quotient::exact, &exact);
    quantize_fp8_row(&x, 1, 1.0f, Quotient::rounded_to_bf16, &twice);
    EXPECT_EQ(kernels::decode_e4m3(exact), 18.0f);
    EXPECT_EQ(kernels::decode_e4m3(twice), 16.0f);
}

TEST(LargestMagnitude, SeesNumbersThatAreNotFinite) {
    std::vector<float> x(100, 0.5f);
    x[50] = -7.0f;
    EXPECT_EQ(largest_magnitude(x.data(), 100), 7.0f);
    EXPECT_EQ(largest_magnitude(x.data(), 0), 0.0f);
    x[99] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isinf(largest_magnitude(x.data(), 100)));
    x[99] = -std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(largest_magnitude(x.data(), 100)));
}

}  // namespace
}  // namespace espalier::quant
