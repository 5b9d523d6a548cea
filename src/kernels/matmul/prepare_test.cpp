// The input quantisers, through the prepare functions of the table, against ModelOpt's goldens and one-value references.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/matmul/matmul_ref.h"
#include "kernels/matmul/matmul_table.h"
#include "kernels/matmul/prepared.h"
#include "kernels/quantize/formats.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

std::vector<MatmulVariant> nvfp4_ckpt_variants() {
    std::vector<MatmulVariant> found;
    for (const MatmulVariant& variant : matmul_variants()) {
        if (variant.kernel.layout == WeightLayout::nvfp4 && variant.kernel.acts == Acts::ckpt) found.push_back(variant);
    }
    return found;
}

// Position of k within a group's codes: evens of 8 first.
size_t position(size_t k) {
    return k / 8 * 8 + k % 2 * 4 + k % 8 / 2;
}

// Doubled value with sign, as the kernels hold it.
int doubled(uint8_t code) {
    return static_cast<int>(2 * decode_e2m1(code));
}

class Nvfp4InputTest : public testing::TestWithParam<MatmulVariant> {
protected:
    void SetUp() override { ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().kernel.isa); }

    // 16 k as a kernel reads them.
    struct Group {
        int8_t codes[16];
        int32_t bias;
        float factor;
    };

    static std::vector<Group> prepare(const std::vector<float>& x, float input_scale) {
        PackedView weight;
        weight.k = static_cast<int64_t>(x.size());
        weight.input_scale = input_scale;
        std::vector<I8Block> blocks(static_cast<size_t>(i8_blocks(weight.k)));
        GetParam().kernel.prepare({.weight = &weight,
                                   .x = x.data(),
                                   .x_stride = weight.k,
                                   .m = 1,
                                   .row_end = 1,
                                   .k_end = weight.k,
                                   .prepared = blocks.data()});
        std::vector<Group> groups(x.size() / 16);
        for (size_t g = 0; g < groups.size(); ++g) {
            const I8Block& block = blocks[g / 4];
            std::copy_n(block.codes + g % 4 * 16, 16, groups[g].codes);
            groups[g].bias = block.bias[g % 4];
            groups[g].factor = block.factor[g % 4];
        }
        return groups;
    }

    static void expect_reference(const std::vector<float>& x, float input_scale) {
        const std::vector<Group> groups = prepare(x, input_scale);
        for (size_t g = 0; g < groups.size(); ++g) {
            const Nvfp4Group expected = quantise_nvfp4_ref(std::span(x).subspan(g * 16, 16), input_scale);
            int sum = 0;
            for (size_t i = 0; i < 16; ++i) {
                ASSERT_EQ(groups[g].codes[position(i)], doubled(expected.codes[i])) << x[g * 16 + i] << " in group " << g;
                sum += groups[g].codes[i];
            }
            EXPECT_EQ(groups[g].bias, -12 * sum);
            if (sum != 0) {
                EXPECT_EQ(groups[g].factor, decode_e4m3(expected.scale) * input_scale * 64.0f);
            }
        }
    }
};

TEST_P(Nvfp4InputTest, CodesAndScalesMatchModelOpt) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("nvfp4_act.json"));
    const float input_scale = golden["input_scale"].get<float>();
    for (size_t row = 0; row < golden["x"].size(); ++row) {
        std::vector<float> x;
        for (const Json& value : golden["x"][row]) x.push_back(value.get<float>());
        const std::vector<Group> groups = prepare(x, input_scale);
        for (size_t k = 0; k < x.size(); ++k) {
            const uint8_t code = golden["codes"][row][k].get<uint8_t>();
            EXPECT_EQ(groups[k / 16].codes[position(k % 16)], doubled(code)) << "row " << row << " k " << k;
        }
        for (size_t g = 0; g < groups.size(); ++g) {
            const float scale = decode_e4m3(golden["scale_bytes"][row][g].get<uint8_t>());
            EXPECT_EQ(groups[g].factor, scale * input_scale * 64.0f) << "row " << row << " group " << g;
        }
    }
}

TEST_P(Nvfp4InputTest, MatchesTheReferenceOnManyValues) {
    for (const float deviation : {1e-4f, 0.1f, 1.0f, 30.0f, 1e6f})
        expect_reference(normal_values(16 * 500, 1, deviation), 0.0023f);
    expect_reference(extreme_values(16 * 100, 2), 0.5f);
}

TEST_P(Nvfp4InputTest, TiesGoToTheEvenCode) {
    // amax 6 and input scale 1 make the factor 1, so inputs meet the thresholds themselves.
    std::vector<float> x = {6.0f,   0.25f,  0.75f,  1.25f,  1.75f, 2.5f,  3.5f,  5.0f,
                            -0.25f, -0.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5.0f, -6.0f};
    expect_reference(x, 1.0f);
    const std::vector<Group> groups = prepare(x, 1.0f);
    const std::vector<int> expected = {12, 0, 2, 2, 4, 4, 8, 8, 0, -2, -2, -4, -4, -8, -8, -12};
    for (size_t k = 0; k < 16; ++k) EXPECT_EQ(groups[0].codes[position(k)], expected[k]) << x[k];
}

std::string input_name(const testing::TestParamInfo<MatmulVariant>& info) {
    return std::string(to_string(info.param.kernel.isa));
}

INSTANTIATE_TEST_SUITE_P(Table, Nvfp4InputTest, testing::ValuesIn(nvfp4_ckpt_variants()), input_name);

}  // namespace
}  // namespace espalier::kernels
