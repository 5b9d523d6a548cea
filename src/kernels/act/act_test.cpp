#include "kernels/act/act.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/act/act_ref.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kSizes[] = {1, 7, 8, 9, 15, 16, 17, 33, 100, 4096};

// Runs any of the three on (a, b); the result replaces a in all of them.
std::vector<float> run(const KernelTable& table, std::string_view op, std::vector<float> a, const std::vector<float>& b) {
    const int64_t n = static_cast<int64_t>(a.size());
    if (op == "swiglu") table.swiglu({.gate = a.data(), .up = b.data(), .y = a.data(), .n = n});
    if (op == "sigmoid_gate") table.sigmoid_gate({.x = a.data(), .gate = b.data(), .n = n});
    if (op == "add") table.add({.y = a.data(), .x = b.data(), .n = n});
    return a;
}

double reference(std::string_view op, double a, double b) {
    if (op == "swiglu") return silu_ref(a) * b;
    if (op == "sigmoid_gate") return a * sigmoid_ref(b);
    return a + b;
}

class ActTest : public testing::TestWithParam<KernelVariant> {};

TEST_P(ActTest, MatchesTheOracle) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n : kSizes) {
        const std::vector<float> a = normal_values(n, 1, 8.0f);
        const std::vector<float> b = normal_values(n, 2, 8.0f);
        const std::vector<float> y = run(GetParam().table, GetParam().op, a, b);
        for (size_t i = 0; i < y.size(); ++i) {
            const double expected = reference(GetParam().op, a[i], b[i]);
            EXPECT_NEAR(y[i], expected, 4e-7 * std::abs(expected) + 1e-30) << "n " << n << " at " << i;
        }
    }
}

TEST_P(ActTest, SameBitsAsScalar) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_TRUE(GetParam().flags & kSameBits);
    for (const int64_t n : kSizes) {
        const auto same = [&](const std::vector<float>& a, const std::vector<float>& b) {
            EXPECT_SAME_BITS(run(GetParam().table, GetParam().op, a, b), run(scalar_table(), GetParam().op, a, b)) << "n " << n;
        };
        same(normal_values(n, 3, 20.0f), normal_values(n, 4, 20.0f));
        same(extreme_values(n, 5), extreme_values(n, 6));
        std::vector<float> special = extreme_values(n, 7);
        special[0] = std::nanf("");
        special.back() = INFINITY;
        same(special, extreme_values(n, 8));
        same(extreme_values(n, 9), special);
    }
}

TEST_P(ActTest, AnElementDoesNotDependOnTheSplit) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    const std::vector<float> a = normal_values(100, 1, 5.0f);
    const std::vector<float> b = normal_values(100, 2, 5.0f);
    const std::vector<float> whole = run(GetParam().table, GetParam().op, a, b);
    for (const int64_t cut : {1, 13, 16, 50, 99}) {
        std::vector<float> parts =
            run(GetParam().table, GetParam().op, {a.begin(), a.begin() + cut}, {b.begin(), b.begin() + cut});
        const std::vector<float> rest =
            run(GetParam().table, GetParam().op, {a.begin() + cut, a.end()}, {b.begin() + cut, b.end()});
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_SAME_BITS(parts, whole) << "cut at " << cut;
    }
}

std::vector<KernelVariant> all_acts() {
    std::vector<KernelVariant> all = variants_of("swiglu");
    for (const char* op : {"sigmoid_gate", "add"}) {
        for (const KernelVariant& variant : variants_of(op)) all.push_back(variant);
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Table, ActTest, testing::ValuesIn(all_acts()), [](const auto& i) { return variant_name(i.param); });

}  // namespace
}  // namespace espalier::kernels
