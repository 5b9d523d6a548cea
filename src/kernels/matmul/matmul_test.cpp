#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/gather/gather.h"
#include "kernels/matmul/matmul_ref.h"
#include "kernels/matmul/matmul_table.h"
#include "kernels/matmul/pack.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

// A random weight in one layout, with the floats that it means.
struct TestWeight {
    WeightView view;
    std::vector<std::byte> data;
    std::vector<float> values;  // [n, k]
};

TestWeight make_weight(WeightLayout layout, int64_t n, int64_t k, uint64_t seed) {
    TestWeight w;
    w.view.layout = layout;
    w.view.n = n;
    w.view.k = k;
    std::vector<float> floats = normal_values(n * k, seed, 0.3f);
    const size_t bytes = layout == WeightLayout::f32 ? 4 : 2;
    w.data.resize(floats.size() * bytes);
    for (size_t i = 0; i < floats.size(); ++i) {
        uint32_t bits;
        std::memcpy(&bits, &floats[i], 4);
        // Any finite pattern will do for halves: |x| < 2 keeps the upper bits of a float finite as a half, too.
        if (layout != WeightLayout::f32) bits >>= 16;
        std::memcpy(&w.data[i * bytes], &bits, bytes);
    }
    w.view.data = w.data;
    w.values.resize(floats.size());
    for (int64_t row = 0; row < n; ++row) gather_row(w.view, row, w.values.data() + row * k);
    return w;
}

struct Rows {
    int64_t m = 0;
    int64_t k = 0;
    std::vector<float> x;
};

// Columns of the result beyond n are a guard.
constexpr float kGuard = 12345.0f;

std::vector<float> run(const PackedMatrix& weight, const Rows& rows, ThreadPool& pool) {
    const int64_t stride = weight.n() + 5;
    std::vector<float> padded(static_cast<size_t>(rows.m * stride), kGuard);
    Buffer scratch = *Buffer::allocate(matmul_scratch_bytes(weight, rows.m));
    matmul(weight, rows.x.data(), rows.k, rows.m, padded.data(), stride, scratch.data(), pool);
    std::vector<float> y;
    for (int64_t row = 0; row < rows.m; ++row) {
        const auto begin = padded.begin() + row * stride;
        EXPECT_TRUE(std::all_of(begin + weight.n(), begin + stride, [](float v) { return v == kGuard; })) << "written beyond n";
        y.insert(y.end(), begin, begin + weight.n());
    }
    return y;
}

Rows make_rows(int64_t m, int64_t k, uint64_t seed) {
    return {m, k, normal_values(m * k, seed)};
}

Rows some_rows(const Rows& rows, int64_t begin, int64_t end) {
    return {end - begin, rows.k, {rows.x.begin() + begin * rows.k, rows.x.begin() + end * rows.k}};
}

class MatmulTest : public testing::TestWithParam<MatmulVariant> {
protected:
    void SetUp() override { ESPALIER_SKIP_UNLESS_AVAILABLE(kernel().isa); }
    const MatmulKernel& kernel() const { return GetParam().kernel; }

    PackedMatrix pack(const TestWeight& weight, Isa isa) {
        Result<PackedMatrix> packed = PackedMatrix::pack(std::span(&weight.view, 1), kernel().acts, isa, pool);
        EXPECT_TRUE(packed) << packed.error().message;
        return *std::move(packed);
    }
    PackedMatrix pack(const TestWeight& weight) {
        PackedMatrix packed = pack(weight, kernel().isa);
        EXPECT_STREQ(packed.kernel().name, kernel().name);
        return packed;
    }
    ThreadPool pool{2};
};

struct Shape {
    int64_t n, k;
};
// Panels of 16 with tails, groups of 8 panels with tails, sums of 64 with tails.
constexpr Shape kShapes[] = {{1, 16}, {16, 64}, {17, 48}, {33, 80}, {130, 128}, {150, 336}, {48, 1024}};

TEST_P(MatmulTest, EveryRowCountMatchesTheOracle) {
    for (const Shape& shape : kShapes) {
        const TestWeight weight = make_weight(kernel().layout, shape.n, shape.k, 1);
        const PackedMatrix packed = pack(weight);
        for (int64_t m = 1; m <= 26; m += m < 16 ? 1 : 9) {
            const Rows rows = make_rows(m, shape.k, static_cast<uint64_t>(m));
            const std::vector<double> expected = matmul_ref(rows.x, weight.values, m, shape.n, shape.k);
            EXPECT_LT(relative_rms(run(packed, rows, pool), expected), 5e-7) << "m " << m << " n " << shape.n << " k " << shape.k;
        }
    }
}

TEST_P(MatmulTest, SameBitsAsScalar) {
    if ((GetParam().flags & kSameBits) == 0) GTEST_SKIP() << "not flagged";
    for (const Shape& shape : kShapes) {
        const TestWeight weight = make_weight(kernel().layout, shape.n, shape.k, 2);
        const PackedMatrix packed = pack(weight);
        const PackedMatrix scalar = pack(weight, Isa::scalar);
        Rows rows = make_rows(5, shape.k, 3);
        EXPECT_SAME_BITS(run(packed, rows, pool), run(scalar, rows, pool)) << "n " << shape.n << " k " << shape.k;
        rows.x = extreme_values(5 * shape.k, 4);
        EXPECT_SAME_BITS(run(packed, rows, pool), run(scalar, rows, pool)) << "extremes, n " << shape.n << " k " << shape.k;
    }
}

TEST_P(MatmulTest, ARowIsTheSameAmongAnyNeighbours) {
    ASSERT_TRUE(GetParam().flags & kRowIndependent);
    const TestWeight weight = make_weight(kernel().layout, 300, 144, 5);
    const PackedMatrix packed = pack(weight);
    const Rows rows = make_rows(61, 144, 6);
    const std::vector<float> whole = run(packed, rows, pool);
    int64_t begin = 0;
    for (int64_t count = 1; begin < rows.m; ++count) {
        const int64_t end = std::min(rows.m, begin + count);
        const auto expected =
            std::span(whole).subspan(static_cast<size_t>(begin * 300), static_cast<size_t>((end - begin) * 300));
        EXPECT_SAME_BITS(run(packed, some_rows(rows, begin, end), pool), expected) << "rows " << begin << " to " << end;
        begin = end;
    }
}

TEST_P(MatmulTest, ThreadsAndPanelSplitsDoNotMatter) {
    const TestWeight weight = make_weight(kernel().layout, 300, 144, 7);
    const PackedMatrix packed = pack(weight);
    const Rows rows = make_rows(7, 144, 8);
    const std::vector<float> expected = run(packed, rows, pool);
    for (const int n_threads : {1, 3, 8}) {
        ThreadPool other(n_threads);
        EXPECT_SAME_BITS(run(packed, rows, other), expected) << n_threads << " threads";
    }
    // Panel ranges of one, as no thread split makes them.
    Buffer prepared = *Buffer::allocate(matmul_scratch_bytes(packed, rows.m));
    MatmulArgs args;
    args.weight = &packed.view();
    args.prepared = rows.x.data();
    args.prepared_stride = rows.k * 4;
    if (kernel().prepare != nullptr) {
        kernel().prepare(
            {.weight = &packed.view(), .x = rows.x.data(), .x_stride = rows.k, .m = rows.m, .prepared = prepared.data()});
        args.prepared = prepared.data();
        args.prepared_stride = kernel().prepared_row_bytes(rows.k);
    }
    std::vector<float> y(expected.size());
    args.m = rows.m;
    args.y = y.data();
    args.y_stride = 300;
    for (int64_t panel = 0; panel < packed.n_panels(); ++panel) {
        args.panel_begin = panel;
        args.panel_end = panel + 1;
        kernel().run(args);
    }
    EXPECT_SAME_BITS(y, expected);
}

TEST_P(MatmulTest, StackedWeightsAreTheirRows) {
    const TestWeight first = make_weight(kernel().layout, 21, 64, 9);
    const TestWeight second = make_weight(kernel().layout, 30, 64, 10);
    const WeightView views[] = {first.view, second.view};
    Result<PackedMatrix> stacked = PackedMatrix::pack(views, kernel().acts, kernel().isa, pool);
    ASSERT_TRUE(stacked) << stacked.error().message;
    EXPECT_EQ(stacked->n(), 51);
    const Rows rows = make_rows(1, 64, 11);
    std::vector<float> expected = run(pack(first), rows, pool);
    const std::vector<float> rest = run(pack(second), rows, pool);
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_SAME_BITS(run(*stacked, rows, pool), expected);
}

TEST_P(MatmulTest, UnpackedRowsAreTheWeights) {
    const TestWeight weight = make_weight(kernel().layout, 37, 80, 12);
    const PackedMatrix packed = pack(weight);
    std::vector<float> row(80);
    for (int64_t r = 0; r < 37; ++r) {
        packed.unpack_row(r, row.data());
        EXPECT_SAME_BITS(row, std::span(weight.values).subspan(static_cast<size_t>(r * 80), 80)) << "row " << r;
    }
}

std::string matmul_name(const testing::TestParamInfo<MatmulVariant>& info) {
    std::string name = info.param.kernel.name;
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Table, MatmulTest, testing::ValuesIn(matmul_variants().begin(), matmul_variants().end()), matmul_name);

TEST(Pack, DifferentWeightsCannotBeStacked) {
    ThreadPool pool(1);
    const TestWeight a = make_weight(WeightLayout::f32, 16, 32, 1);
    const TestWeight b = make_weight(WeightLayout::bf16, 16, 32, 1);
    const WeightView views[] = {a.view, b.view};
    const Result<PackedMatrix> packed = PackedMatrix::pack(views, Acts::a32, Isa::scalar, pool);
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().code, ErrorCode::invalid_input);
    EXPECT_NE(packed.error().message.find("bf16"), std::string::npos);
}

TEST(Pack, ColumnsMustComeInSixteens) {
    ThreadPool pool(1);
    const TestWeight weight = make_weight(WeightLayout::f32, 16, 40, 1);
    const Result<PackedMatrix> packed = PackedMatrix::pack(std::span(&weight.view, 1), Acts::a32, Isa::scalar, pool);
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().code, ErrorCode::unsupported);
    EXPECT_NE(packed.error().message.find("40"), std::string::npos);
}

TEST(Pack, FloatWeightsUseA32InEveryMode) {
    for (const Acts acts : {Acts::a32, Acts::a16, Acts::a8, Acts::ckpt}) {
        const MatmulKernel* kernel = find_matmul_kernel(WeightLayout::bf16, acts, Isa::scalar);
        ASSERT_NE(kernel, nullptr);
        EXPECT_EQ(kernel->acts, Acts::a32);
    }
}

}  // namespace
}  // namespace espalier::kernels
