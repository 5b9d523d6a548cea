#include "kernels/gather/gather.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/quantize/formats.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

std::span<const std::byte> bytes_of(const auto& values) {
    return std::as_bytes(std::span(values));
}

std::vector<float> row_of(const WeightView& weight, int64_t row) {
    std::vector<float> out(static_cast<size_t>(weight.k));
    gather_row(weight, row, out.data());
    return out;
}

TEST(Gather, FloatLayouts) {
    const std::vector<float> f32 = normal_values(3 * 5, 1);
    WeightView weight = {.layout = WeightLayout::f32, .n = 3, .k = 5, .data = bytes_of(f32)};
    EXPECT_SAME_BITS(row_of(weight, 2), std::span(f32).subspan(10, 5));

    const std::vector<uint16_t> words = {0x3f80, 0xc000, 0x0001, 0x4049, 0x3c00, 0x7bff};
    weight = {.layout = WeightLayout::bf16, .n = 2, .k = 3, .data = bytes_of(words)};
    EXPECT_EQ(row_of(weight, 1), (std::vector<float>{decode_bf16(0x4049), decode_bf16(0x3c00), decode_bf16(0x7bff)}));
    weight.layout = WeightLayout::f16;
    EXPECT_EQ(row_of(weight, 1), (std::vector<float>{decode_f16(0x4049), 1.0f, 65504.0f}));
}

TEST(Gather, BytesNeedNoAlignment) {
    const std::vector<float> f32 = normal_values(2 * 4, 1);
    std::vector<std::byte> shifted(f32.size() * 4 + 1);
    std::memcpy(shifted.data() + 1, f32.data(), f32.size() * 4);
    const WeightView weight = {.layout = WeightLayout::f32, .n = 2, .k = 4, .data = std::span(shifted).subspan(1)};
    EXPECT_SAME_BITS(row_of(weight, 1), std::span(f32).subspan(4));
}

TEST(Gather, Nvfp4MatchesModelOpt) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("nvfp4_weight.json"));
    std::vector<uint8_t> codes, scales;
    for (const Json& row : golden["packed"]) {
        for (const Json& value : row) codes.push_back(value.get<uint8_t>());
    }
    for (const Json& row : golden["scale_bytes"]) {
        for (const Json& value : row) scales.push_back(value.get<uint8_t>());
    }
    const WeightView weight = {.layout = WeightLayout::nvfp4,
                               .n = 8,
                               .k = 64,
                               .data = bytes_of(codes),
                               .block_scales_e4m3 = scales,
                               .row_scales = {{0, 8, golden["weight_scale_2"].get<float>(), 0.0f}}};
    for (size_t row = 0; row < 8; ++row) {
        std::vector<float> expected;
        for (const Json& value : golden["dequantised"][row]) expected.push_back(value.get<float>());
        EXPECT_EQ(row_of(weight, static_cast<int64_t>(row)), expected) << "row " << row;
    }
}

TEST(Gather, RowsUseTheScaleOfTheirRange) {
    const std::vector<uint8_t> codes(4 * 8, 0x22);
    const std::vector<uint8_t> ones(4, 0x38);  // E4M3 1.0
    const WeightView weight = {.layout = WeightLayout::nvfp4,
                               .n = 4,
                               .k = 16,
                               .data = bytes_of(codes),
                               .block_scales_e4m3 = ones,
                               .row_scales = {{0, 1, 2.0f, 0}, {1, 4, 3.0f, 0}}};
    EXPECT_EQ(row_of(weight, 0), std::vector<float>(16, 2.0f));
    EXPECT_EQ(row_of(weight, 1), std::vector<float>(16, 3.0f));
    EXPECT_EQ(row_of(weight, 3), std::vector<float>(16, 3.0f));
}

TEST(Gather, Fp8ScalesPerTensorChannelAndBlock) {
    const int64_t k = 200;
    const std::vector<uint8_t> codes(130 * 200, 0x40);  // 2.0
    WeightView weight = {
        .layout = WeightLayout::fp8_tensor, .n = 130, .k = k, .data = bytes_of(codes), .row_scales = {{0, 130, 0.25f, 0}}};
    EXPECT_EQ(row_of(weight, 129), std::vector<float>(200, 0.5f));
    weight.layout = WeightLayout::fp8_channel;
    for (int row = 0; row < 130; ++row) weight.scales.push_back(static_cast<float>(row));
    EXPECT_EQ(row_of(weight, 7), std::vector<float>(200, 14.0f));
    weight.layout = WeightLayout::fp8_block;
    weight.scales = {1, 2, 3, 4};
    std::vector<float> expected(200, 2.0f);
    std::fill(expected.begin() + 128, expected.end(), 4.0f);
    EXPECT_EQ(row_of(weight, 127), expected);
    std::fill(expected.begin(), expected.begin() + 128, 6.0f);
    std::fill(expected.begin() + 128, expected.end(), 8.0f);
    EXPECT_EQ(row_of(weight, 128), expected);
}

}  // namespace
}  // namespace espalier::kernels
