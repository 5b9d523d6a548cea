#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/rope/rope_ref.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kHeadDim = 80;

std::vector<float> run(const KernelTable& table, std::vector<float> x, const std::vector<float>& cos,
                       const std::vector<float>& sin) {
    RopeArgs args;
    args.x = x.data();
    args.n_heads = static_cast<int64_t>(x.size()) / kHeadDim;
    args.head_stride = kHeadDim;
    args.cos = cos.data();
    args.sin = sin.data();
    args.n_pairs = static_cast<int64_t>(cos.size());
    table.rope(args);
    return x;
}

class RopeTest : public testing::TestWithParam<KernelVariant> {};

TEST_P(RopeTest, MatchesTheOracleAndLeavesTheRest) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n_pairs : {1, 3, 8, 15, 16, 17, 32, 40}) {
        const std::vector<float> x = normal_values(3 * kHeadDim, 1);
        const std::vector<float> cos = uniform_values(n_pairs, 2, -1, 1);
        const std::vector<float> sin = uniform_values(n_pairs, 3, -1, 1);
        const std::vector<float> y = run(GetParam().table, x, cos, sin);
        for (size_t head = 0; head < 3; ++head) {
            const auto values = std::span(x).subspan(head * kHeadDim, kHeadDim);
            const auto found = std::span(y).subspan(head * kHeadDim, kHeadDim);
            EXPECT_LT(max_abs_difference(found, rope_ref(values, cos, sin)), 5e-7) << n_pairs << " pairs";
            const size_t rest = static_cast<size_t>(2 * n_pairs);
            EXPECT_SAME_BITS(found.subspan(rest), values.subspan(rest));
        }
    }
}

TEST_P(RopeTest, SameBitsAsScalarAndPerHead) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_EQ(GetParam().flags, kSameBits | kRowIndependent);
    for (const int64_t n_pairs : {1, 15, 16, 32, 37}) {
        const std::vector<float> cos = extreme_values(n_pairs, 2);
        const std::vector<float> sin = extreme_values(n_pairs, 3);
        const std::vector<float> x = extreme_values(4 * kHeadDim, 4);
        const std::vector<float> y = run(GetParam().table, x, cos, sin);
        EXPECT_SAME_BITS(y, run(scalar_table(), x, cos, sin));
        const std::vector<float> last = run(GetParam().table, {x.end() - kHeadDim, x.end()}, cos, sin);
        EXPECT_SAME_BITS(last, std::span(y).last(kHeadDim));
    }
}

INSTANTIATE_TEST_SUITE_P(Table, RopeTest, testing::ValuesIn(variants_of("rope")),
                         [](const auto& i) { return variant_name(i.param); });

TEST(RopeGolden, MatchesTransformers) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("rope.json"));
    for (size_t row = 0; row < 4; ++row) {
        std::vector<float> cos, sin, x;
        for (const Json& frequency : golden["inv_freq"]) {
            const float angle = golden["positions"][row].get<float>() * frequency.get<float>();
            cos.push_back(std::cos(angle));
            sin.push_back(std::sin(angle));
        }
        for (const Json& value : golden["x"][row]) x.push_back(value.get<float>());
        scalar_table().rope(
            {.x = x.data(), .n_heads = 1, .head_stride = 256, .cos = cos.data(), .sin = sin.data(), .n_pairs = 32});
        std::vector<double> expected;
        for (const Json& value : golden["y"][row]) expected.push_back(value.get<double>());
        EXPECT_LT(max_abs_difference(x, expected), 2e-6) << "row " << row;
    }
}

}  // namespace
}  // namespace espalier::kernels
