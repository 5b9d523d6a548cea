#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

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
    std::vector<uint8_t> block_scales;
    std::vector<float> values;  // [n, k]
};

void set_floats(TestWeight& w, const std::vector<float>& floats) {
    const size_t bytes = w.view.layout == WeightLayout::f32 ? 4 : 2;
    w.data.resize(floats.size() * bytes);
    for (size_t i = 0; i < floats.size(); ++i) {
        uint32_t bits;
        std::memcpy(&bits, &floats[i], 4);
        // Any finite pattern will do for halves: |x| < 2 keeps the upper bits of a float finite as a half, too.
        if (w.view.layout != WeightLayout::f32) bits >>= 16;
        std::memcpy(&w.data[i * bytes], &bits, bytes);
    }
}

void set_nvfp4(TestWeight& w, uint64_t seed) {
    std::mt19937_64 engine(seed);
    w.data.resize(static_cast<size_t>(w.view.n * w.view.k / 2));
    for (std::byte& b : w.data) b = static_cast<std::byte>(engine());
    w.block_scales.resize(static_cast<size_t>(w.view.n * w.view.k / 16));
    for (uint8_t& scale : w.block_scales) scale = static_cast<uint8_t>(engine() % 0x7f);  // 0 and subnormal ones among them
    w.view.activations = ActivationScheme::nvfp4_static;
    const int64_t cut = w.view.n / 2;
    w.view.row_scales = {{0, cut, 0.0123f, 0.0021f}, {cut, w.view.n, 0.00731f, 0.0021f}};
}

void set_fp8(TestWeight& w, uint64_t seed) {
    std::mt19937_64 engine(seed);
    w.data.resize(static_cast<size_t>(w.view.n * w.view.k));
    for (std::byte& b : w.data) b = static_cast<std::byte>(engine() % 0x7f | (engine() & 0x80));
    if (w.view.layout == WeightLayout::fp8_tensor) {
        w.view.activations = ActivationScheme::fp8_static;
        w.view.row_scales = {{0, w.view.n, 0.0123f, 0.021f}};
    } else if (w.view.layout == WeightLayout::fp8_channel) {
        w.view.activations = ActivationScheme::fp8_dynamic_token;
        w.view.scales = uniform_values(w.view.n, seed, 0.001f, 0.01f);
    } else {
        w.view.activations = ActivationScheme::fp8_dynamic_block;
        w.view.scales = uniform_values((w.view.n + 127) / 128 * ((w.view.k + 127) / 128), seed, 0.001f, 0.01f);
    }
}

TestWeight make_weight(WeightLayout layout, int64_t n, int64_t k, uint64_t seed) {
    TestWeight w;
    w.view.layout = layout;
    w.view.n = n;
    w.view.k = k;
    switch (layout) {
        case WeightLayout::f32:
        case WeightLayout::bf16:
        case WeightLayout::f16: set_floats(w, normal_values(n * k, seed, 0.3f)); break;
        case WeightLayout::nvfp4: set_nvfp4(w, seed); break;
        default: set_fp8(w, seed); break;
    }
    w.view.data = w.data;
    w.view.block_scales_e4m3 = w.block_scales;
    w.values.resize(static_cast<size_t>(n * k));
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
    matmul(weight, {rows.x.data(), rows.k, rows.m, padded.data(), stride, scratch.data()}, pool);
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
    ThreadPool pool{1};
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
            const std::vector<double> inputs = inputs_ref(rows.x, m, weight.view, kernel().acts);
            const std::vector<double> expected = matmul_ref(inputs, weight.values, m, shape.n, shape.k);
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
    for (const int n_threads : {2, 5}) {
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
        // Each row in two pieces where that is allowed.
        for (int64_t row = 0; row < rows.m; ++row) {
            const int64_t cut = kernel().input_columns == 0 ? rows.k : std::min(rows.k, kernel().input_columns);
            for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, rows.k)}) {
                if (begin == end) continue;
                prepare_part(packed, {rows.x.data(), rows.k, rows.m, nullptr, 0, prepared.data()}, {row, row + 1, begin, end});
            }
        }
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
    // Once more on top.
    args.store = Store::add;
    args.panel_begin = 0;
    kernel().run(args);
    for (float& value : y) value /= 2;
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

TEST_P(MatmulTest, ABadInputShowsInItsRowOnly) {
    const TestWeight weight = make_weight(kernel().layout, 40, 160, 13);
    const PackedMatrix packed = pack(weight);
    Rows rows = make_rows(3, 160, 14);
    const std::vector<float> good = run(packed, rows, pool);
    for (const float bad : {std::nanf(""), INFINITY}) {
        rows.x[160 + 77] = bad;
        const std::vector<float> y = run(packed, rows, pool);
        EXPECT_SAME_BITS(std::span(y).first(40), std::span(good).first(40));
        EXPECT_SAME_BITS(std::span(y).last(40), std::span(good).last(40));
        EXPECT_TRUE(std::any_of(y.begin() + 40, y.begin() + 80, [](float v) { return !std::isfinite(v); })) << bad;
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

TEST(Pack, ModesThatAreNotTheirOwn) {
    WeightView weight = {.layout = WeightLayout::bf16};
    for (const Acts acts : {Acts::a32, Acts::a16, Acts::a8, Acts::ckpt}) EXPECT_EQ(*effective_acts(weight, acts), Acts::a32);
    weight.layout = WeightLayout::fp8_channel;
    EXPECT_EQ(*effective_acts(weight, Acts::a8), Acts::a16);
    EXPECT_EQ(*effective_acts(weight, Acts::ckpt), Acts::a32) << "nothing declared";
    weight.layout = WeightLayout::nvfp4;
    EXPECT_EQ(*effective_acts(weight, Acts::a8), Acts::a8);
    weight.activations = ActivationScheme::fp8_dynamic_token;
    const Result<Acts> acts = effective_acts(weight, Acts::ckpt);
    ASSERT_FALSE(acts);
    EXPECT_NE(acts.error().message.find("fp8_dynamic_token"), std::string::npos);
}

TEST(Pack, AnInputScaleMustBeSharedAndPositive) {
    ThreadPool pool(1);
    TestWeight a = make_weight(WeightLayout::nvfp4, 16, 32, 1);
    TestWeight b = make_weight(WeightLayout::nvfp4, 16, 32, 2);
    b.view.row_scales[1].input_scale = 0.5f;
    const WeightView views[] = {a.view, b.view};
    EXPECT_EQ(PackedMatrix::pack(views, Acts::ckpt, Isa::scalar, pool).error().code, ErrorCode::invalid_input);
    EXPECT_TRUE(PackedMatrix::pack(views, Acts::a8, Isa::scalar, pool)) << "only ckpt uses it";
    for (RowScale& range : a.view.row_scales) range.input_scale = 0.0f;
    EXPECT_EQ(PackedMatrix::pack(std::span(&a.view, 1), Acts::ckpt, Isa::scalar, pool).error().code, ErrorCode::invalid_input);
}

TEST(Pack, NanCodesAreCorrupt) {
    ThreadPool pool(1);
    TestWeight weight = make_weight(WeightLayout::fp8_tensor, 16, 32, 1);
    weight.data[100] = std::byte{0xff};
    const Result<PackedMatrix> packed = PackedMatrix::pack(std::span(&weight.view, 1), Acts::a32, Isa::scalar, pool);
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().code, ErrorCode::corrupt_data);
}

}  // namespace
}  // namespace espalier::kernels
