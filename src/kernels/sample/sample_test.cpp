#include "kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

struct Found {
    float value = 0;
    int64_t index = -1;
};

Found run(const KernelTable& table, const std::vector<float>& x) {
    Found found;
    table.argmax({.x = x.data(), .n = static_cast<int64_t>(x.size()), .value = &found.value, .index = &found.index});
    return found;
}

// The contract, literally.
int64_t argmax_ref(const std::vector<float>& x) {
    int64_t best = -1;
    for (size_t i = 0; i < x.size(); ++i) {
        if (std::isnan(x[i])) continue;
        if (best < 0 || x[i] > x[static_cast<size_t>(best)]) best = static_cast<int64_t>(i);
    }
    return best < 0 ? 0 : best;
}

class ArgmaxTest : public testing::TestWithParam<KernelVariant> {
protected:
    void expect_reference(const std::vector<float>& x) const {
        const Found found = run(GetParam().table, x);
        ASSERT_EQ(found.index, argmax_ref(x)) << "n " << x.size();
        EXPECT_SAME_BITS(std::span(&found.value, 1), std::span(x).subspan(static_cast<size_t>(found.index), 1));
    }
};

constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 79, 80, 81, 1000, 1152, 4099};

TEST_P(ArgmaxTest, FindsTheHighestAnywhere) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n : kSizes) {
        std::vector<float> x = normal_values(n, static_cast<uint64_t>(n));
        expect_reference(x);
        for (int64_t at = 0; at < n; at += 1 + n / 40) {
            std::vector<float> peaked = x;
            peaked[static_cast<size_t>(at)] = 100.0f;
            expect_reference(peaked);
        }
    }
}

TEST_P(ArgmaxTest, LowestIndexAmongEquals) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n : kSizes) {
        std::vector<float> x(static_cast<size_t>(n), -1.0f);
        expect_reference(x);
        x.back() = 3.0f;
        x[x.size() / 2] = 3.0f;
        x[x.size() / 3] = 3.0f;
        expect_reference(x);
        std::vector<float> zeros(static_cast<size_t>(n), 0.0f);
        zeros[0] = -0.0f;
        expect_reference(zeros);
    }
}

TEST_P(ArgmaxTest, NanNeverWins) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n : kSizes) {
        std::vector<float> x(static_cast<size_t>(n), std::nanf(""));
        expect_reference(x);
        x.back() = -INFINITY;
        expect_reference(x);
        x[x.size() / 2] = 2.0f;
        expect_reference(x);
        std::vector<float> lowest(static_cast<size_t>(n), -INFINITY);
        expect_reference(lowest);
        lowest[0] = std::nanf("");
        expect_reference(lowest);
    }
}

INSTANTIATE_TEST_SUITE_P(Table, ArgmaxTest, testing::ValuesIn(variants_of("argmax")),
                         [](const auto& i) { return variant_name(i.param); });

}  // namespace
}  // namespace espalier::kernels
