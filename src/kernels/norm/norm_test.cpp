#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include "kernels/norm/norm_ref.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

struct NormCase {
    int64_t n_rows = 0;
    int64_t n = 0;
    std::vector<float> x, z, weight;
    float eps = 1e-6f;
    float scale = 0.088388347648f;

    NormArgs args(float* y) const {
        NormArgs a;
        a.x = x.data();
        a.x_stride = n;
        a.z = z.data();
        a.z_stride = n;
        a.weight = weight.data();
        a.y = y;
        a.y_stride = n;
        a.n_rows = n_rows;
        a.n = n;
        a.eps = eps;
        a.scale = scale;
        return a;
    }
};

NormCase make_case(int64_t n_rows, int64_t n) {
    return {n_rows, n, normal_values(n_rows * n, 1), normal_values(n_rows * n, 2, 3.0f), normal_values(n, 3)};
}

NormFn function_of(const KernelTable& table, std::string_view op) {
    return op == "rmsnorm" ? table.rmsnorm : op == "l2norm" ? table.l2norm : table.gated_rmsnorm;
}

std::vector<double> reference(std::string_view op, const NormArgs& args) {
    return op == "rmsnorm" ? rmsnorm_ref(args) : op == "l2norm" ? l2norm_ref(args) : gated_rmsnorm_ref(args);
}

class NormTest : public testing::TestWithParam<KernelVariant> {
protected:
    std::vector<float> run(const NormCase& c) const { return run(function_of(GetParam().table, GetParam().op), c); }
    std::vector<float> run_scalar(const NormCase& c) const { return run(function_of(scalar_table(), GetParam().op), c); }

private:
    static std::vector<float> run(NormFn norm, const NormCase& c) {
        std::vector<float> y(c.x.size());
        norm(c.args(y.data()));
        return y;
    }
};

constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 64, 100, 128, 256, 1000, 1024};

TEST_P(NormTest, MatchesTheOracle) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n : kSizes) {
        const NormCase c = make_case(3, n);
        EXPECT_LT(relative_rms(run(c), reference(GetParam().op, c.args(nullptr))), 4e-7) << "n " << n;
    }
}

TEST_P(NormTest, SameBitsAsScalar) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_TRUE(GetParam().flags & kSameBits);
    for (const int64_t n : kSizes) {
        NormCase c = make_case(3, n);
        EXPECT_SAME_BITS(run(c), run_scalar(c)) << "n " << n;
        c.x = extreme_values(3 * n, 5);
        c.z = extreme_values(3 * n, 6);
        EXPECT_SAME_BITS(run(c), run_scalar(c)) << "extremes, n " << n;
        c.x.assign(c.x.size(), 0.0f);
        EXPECT_SAME_BITS(run(c), run_scalar(c)) << "zeros, n " << n;
    }
}

TEST_P(NormTest, ARowDoesNotDependOnItsNeighbours) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_TRUE(GetParam().flags & kRowIndependent);
    const NormCase together = make_case(5, 100);
    const std::vector<float> y = run(together);
    for (int64_t row = 0; row < 5; ++row) {
        NormCase alone = together;
        alone.n_rows = 1;
        alone.x.assign(together.x.begin() + row * 100, together.x.begin() + (row + 1) * 100);
        alone.z.assign(together.z.begin() + row * 100, together.z.begin() + (row + 1) * 100);
        EXPECT_SAME_BITS(run(alone), std::span(y).subspan(static_cast<size_t>(row * 100), 100));
    }
}

TEST_P(NormTest, InPlaceAndStrided) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    const NormCase c = make_case(2, 37);
    const std::vector<float> expected = run(c);
    std::vector<float> rows(2 * 50, 7.0f);
    for (size_t row = 0; row < 2; ++row)
        std::copy_n(c.x.begin() + static_cast<int64_t>(row) * 37, 37, rows.begin() + static_cast<int64_t>(row) * 50);
    NormArgs args = c.args(rows.data());
    args.x = rows.data();
    args.x_stride = 50;
    args.y_stride = 50;
    function_of(GetParam().table, GetParam().op)(args);
    for (size_t row = 0; row < 2; ++row) {
        EXPECT_SAME_BITS(std::span(rows).subspan(row * 50, 37), std::span(expected).subspan(row * 37, 37));
        for (size_t i = 37; i < 50; ++i) EXPECT_EQ(rows[row * 50 + i], 7.0f) << "written beyond the row";
    }
}

std::vector<KernelVariant> all_norms() {
    std::vector<KernelVariant> all = variants_of("rmsnorm");
    for (const char* op : {"gated_rmsnorm", "l2norm"}) {
        for (const KernelVariant& variant : variants_of(op)) all.push_back(variant);
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Table, NormTest, testing::ValuesIn(all_norms()), [](const auto& i) { return variant_name(i.param); });

TEST(NormGolden, MatchesTransformers) {
    const Json golden = read_json(ESPALIER_UNIT_GOLDEN("norms.json"));
    NormCase c = {3, 128, {}, {}, {}};
    for (const Json& row : golden["x"]) {
        for (const Json& value : row) c.x.push_back(value.get<float>());
    }
    for (const Json& row : golden["z"]) {
        for (const Json& value : row) c.z.push_back(value.get<float>());
    }
    const auto expect = [&](NormFn norm, const char* key) {
        std::vector<float> y(c.x.size());
        norm(c.args(y.data()));
        std::vector<double> expected;
        for (const Json& row : golden[key]) {
            for (const Json& value : row) expected.push_back(value.get<double>());
        }
        EXPECT_LT(max_abs_difference(y, expected), 2e-6) << key;
    };
    c.scale = 1.0f;
    for (const Json& value : golden["w"]) c.weight.push_back(1.0f + value.get<float>());
    expect(kernel_table(Isa::scalar).rmsnorm, "y");
    expect(kernel_table(Isa::scalar).l2norm, "l2norm_y");
    c.weight.clear();
    for (const Json& value : golden["gated_w"]) c.weight.push_back(value.get<float>());
    expect(kernel_table(Isa::scalar).gated_rmsnorm, "gated_y");
}

}  // namespace
}  // namespace espalier::kernels
