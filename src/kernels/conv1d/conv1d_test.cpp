#include "kernels/conv1d/conv1d.h"

#include <gtest/gtest.h>

#include "kernels/conv1d/conv1d_ref.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

struct Conv1dCase {
    int64_t n = 0;
    std::vector<float> x, weight;  // [4][n]

    Conv1dArgs args(float* y) const {
        Conv1dArgs a;
        for (int tap = 0; tap < 4; ++tap) a.x[tap] = x.data() + tap * n;
        a.weight = weight.data();
        a.weight_stride = n;
        a.y = y;
        a.n_channels = n;
        return a;
    }
    std::vector<float> run(const KernelTable& table) const {
        std::vector<float> y(static_cast<size_t>(n));
        table.conv1d(args(y.data()));
        return y;
    }
};

class Conv1dTest : public testing::TestWithParam<KernelVariant> {};

constexpr int64_t kSizes[] = {1, 5, 15, 16, 17, 47, 100, 384};

TEST_P(Conv1dTest, MatchesTheOracle) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n : kSizes) {
        const Conv1dCase c = {n, normal_values(4 * n, 1), normal_values(4 * n, 2, 0.5f)};
        EXPECT_LT(max_abs_difference(c.run(GetParam().table), conv1d_ref(c.args(nullptr))), 2e-6) << "n " << n;
    }
}

TEST_P(Conv1dTest, SameBitsAsScalar) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_TRUE(GetParam().flags & kSameBits);
    for (const int64_t n : kSizes) {
        Conv1dCase c = {n, normal_values(4 * n, 1), normal_values(4 * n, 2)};
        EXPECT_SAME_BITS(c.run(GetParam().table), c.run(scalar_table())) << "n " << n;
        c.x = extreme_values(4 * n, 3);
        EXPECT_SAME_BITS(c.run(GetParam().table), c.run(scalar_table())) << "extremes, n " << n;
    }
}

TEST_P(Conv1dTest, AChannelDoesNotDependOnTheSplit) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    const Conv1dCase c = {100, normal_values(400, 1), normal_values(400, 2)};
    const std::vector<float> whole = c.run(GetParam().table);
    std::vector<float> parts(100);
    for (const auto& [begin, end] : {std::pair{0, 3}, std::pair{3, 61}, std::pair{61, 100}}) {
        Conv1dArgs args = c.args(parts.data() + begin);
        for (auto& x : args.x) x += begin;
        args.weight += begin;
        args.n_channels = end - begin;
        GetParam().table.conv1d(args);
    }
    EXPECT_SAME_BITS(parts, whole);
}

INSTANTIATE_TEST_SUITE_P(Table, Conv1dTest, testing::ValuesIn(variants_of("conv1d")),
                         [](const auto& i) { return variant_name(i.param); });

TEST(Conv1dGolden, MatchesTransformers) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("conv.json"));
    const int64_t n = 8;
    Conv1dCase c = {n, std::vector<float>(4 * n), std::vector<float>(4 * n)};
    for (size_t channel = 0; channel < 8; ++channel) {
        for (size_t tap = 0; tap < 4; ++tap) c.weight[tap * 8 + channel] = golden["weight"][channel][tap].get<float>();
    }
    for (const bool fresh : {true, false}) {
        for (int t = 0; t < 10; ++t) {
            std::vector<double> expected;
            for (size_t channel = 0; channel < 8; ++channel) {
                for (int tap = 0; tap < 4; ++tap) {
                    const int at = t - 3 + tap;
                    float& x = c.x[static_cast<size_t>(tap) * 8 + channel];
                    if (at >= 0) {
                        x = golden["x"][static_cast<size_t>(at)][channel].get<float>();
                    } else {
                        x = fresh ? 0.0f : golden["state"][channel][static_cast<size_t>(at + 3)].get<float>();
                    }
                }
                expected.push_back(golden[fresh ? "y_fresh" : "y_from_state"][static_cast<size_t>(t)][channel].get<double>());
            }
            EXPECT_LT(max_abs_difference(c.run(scalar_table()), expected), 1e-6) << "t " << t;
        }
    }
}

}  // namespace
}  // namespace espalier::kernels
