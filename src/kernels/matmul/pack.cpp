// Packing transposes 16 rows at a time into the order in which a kernel reads them. Both float layouts move 32-bit words: one
// value (f32, and f16 widened) or a pair of k (bf16).
#include "kernels/matmul/pack.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/gather/gather.h"
#include "kernels/matmul/matmul_table.h"
#include "kernels/quantize/formats.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kMinK = 16;

Result<int64_t> stacked_rows(std::span<const WeightView> views) {
    if (views.empty()) return invalid_input("no weight to pack");
    const WeightView& first = views[0];
    int64_t n = 0;
    for (const WeightView& view : views) {
        if (view.layout != first.layout || view.k != first.k || view.activations != first.activations) {
            return invalid_input("weights packed as one must agree: found layout " + std::string(to_string(view.layout)) +
                                 ", k " + std::to_string(view.k) + ", activations " + std::string(to_string(view.activations)) +
                                 " beside layout " + std::string(to_string(first.layout)) + ", k " + std::to_string(first.k) +
                                 ", activations " + std::string(to_string(first.activations)));
        }
        n += view.n;
    }
    if (n < 1 || first.k < kMinK || first.k % kMinK != 0) {
        return unsupported("cannot pack a weight of " + std::to_string(n) + " x " + std::to_string(first.k) +
                           ": needs at least one row and a number of columns that is a multiple of 16");
    }
    return n;
}

// Where a stacked row lies.
struct RowRef {
    const WeightView* view = nullptr;
    int64_t row = 0;
};

RowRef find_row(std::span<const WeightView> views, int64_t row) {
    for (const WeightView& view : views) {
        if (row < view.n) return {&view, row};
        row -= view.n;
    }
    return {};  // padding behind the last row
}

// words[w * 16 + output] = word w of the row, zero for padding rows.
void interleave_words(std::span<const WeightView> views, int64_t panel, int64_t words_per_row, uint32_t* words) {
    const std::byte* rows[kPanelRows];
    for (int64_t output = 0; output < kPanelRows; ++output) {
        const RowRef ref = find_row(views, panel * kPanelRows + output);
        rows[output] = ref.view == nullptr ? nullptr : ref.view->data.data() + ref.row * words_per_row * 4;
    }
    for (int64_t w = 0; w < words_per_row; ++w) {
        for (int64_t output = 0; output < kPanelRows; ++output) {
            uint32_t word = 0;
            if (rows[output] != nullptr) std::memcpy(&word, rows[output] + w * 4, 4);
            words[w * kPanelRows + output] = word;
        }
    }
}

void interleave_halves(std::span<const WeightView> views, int64_t panel, int64_t k, float* values) {
    for (int64_t output = 0; output < kPanelRows; ++output) {
        const RowRef ref = find_row(views, panel * kPanelRows + output);
        if (ref.view == nullptr) continue;
        for (int64_t i = 0; i < k; ++i) {
            uint16_t half;
            std::memcpy(&half, ref.view->data.data() + (ref.row * k + i) * 2, 2);
            values[i * kPanelRows + output] = decode_f16(half);
        }
    }
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(std::span<const WeightView> views, Acts acts, Isa isa, ThreadPool& pool) {
    TRY_ASSIGN(const int64_t n, stacked_rows(views));
    const int64_t k = views[0].k;
    PackedMatrix packed;
    packed.layout_ = views[0].layout;
    packed.kernel_ = find_matmul_kernel(packed.layout_, acts, isa);
    if (packed.kernel_ == nullptr) {
        return unsupported("no product for weights in " + std::string(to_string(packed.layout_)) +
                           " with these activations; choose other numerics with --acts");
    }
    packed.view_.n = n;
    packed.view_.k = k;
    const int64_t words_per_row = packed.layout_ == WeightLayout::bf16 ? k / 2 : k;
    const int64_t panel_words = words_per_row * kPanelRows;
    TRY_ASSIGN(packed.codes_, Buffer::allocate(static_cast<size_t>(packed.n_panels() * panel_words * 4)));
    packed.view_.codes = packed.codes_.data();
    pool.run(packed.n_panels(), [&](int64_t panel, int) {
        if (packed.layout_ == WeightLayout::f16) {
            interleave_halves(views, panel, k, packed.codes_.as<float>() + panel * panel_words);
        } else {
            interleave_words(views, panel, words_per_row, packed.codes_.as<uint32_t>() + panel * panel_words);
        }
    });
    return packed;
}

void PackedMatrix::unpack_row(int64_t row, float* out) const {
    CHECK(row >= 0 && row < view_.n, "unpack_row: row outside the weight");
    const int64_t panel = row / kPanelRows;
    const int64_t output = row % kPanelRows;
    if (layout_ == WeightLayout::bf16) {
        const uint16_t* pairs = codes_.as<uint16_t>() + panel * view_.k * kPanelRows;
        for (int64_t i = 0; i < view_.k; ++i) out[i] = decode_bf16(pairs[(i / 2 * kPanelRows + output) * 2 + i % 2]);
    } else {
        const float* values = codes_.as<float>() + panel * view_.k * kPanelRows;
        for (int64_t i = 0; i < view_.k; ++i) out[i] = values[i * kPanelRows + output];
    }
}

void matmul(const PackedMatrix& weight, const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride,
            std::byte* scratch, ThreadPool& pool) {
    const MatmulKernel& kernel = weight.kernel();
    MatmulArgs args;
    args.weight = &weight.view();
    args.m = m;
    args.y = y;
    args.y_stride = y_stride;
    if (kernel.prepare == nullptr) {
        args.prepared = x;
        args.prepared_stride = x_stride * static_cast<int64_t>(sizeof(float));
    } else {
        args.prepared = scratch;
        args.prepared_stride = kernel.prepared_row_bytes(weight.k());
        constexpr int64_t kRowsPerTask = 4;
        pool.run((m + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
            const int64_t row = task * kRowsPerTask;
            PrepareArgs prepare;
            prepare.weight = args.weight;
            prepare.x = x + row * x_stride;
            prepare.x_stride = x_stride;
            prepare.m = std::min(kRowsPerTask, m - row);
            prepare.prepared = scratch + row * args.prepared_stride;
            kernel.prepare(prepare);
        });
    }
    // Tasks are whole groups of panels (a kernel shares row loads within 8) and a few per thread, so that a slow thread
    // leaves work to the others.
    constexpr int64_t kPanelGroup = 8;
    constexpr int64_t kTasksPerThread = 6;
    const int64_t n_groups = (weight.n_panels() + kPanelGroup - 1) / kPanelGroup;
    const int64_t n_tasks = pool.n_threads() == 1 ? 1 : std::min<int64_t>(n_groups, kTasksPerThread * pool.n_threads());
    pool.run(n_tasks, [&](int64_t task, int) {
        MatmulArgs part = args;
        part.panel_begin = task * n_groups / n_tasks * kPanelGroup;
        part.panel_end = std::min(weight.n_panels(), (task + 1) * n_groups / n_tasks * kPanelGroup);
        kernel.run(part);
    });
}

size_t matmul_scratch_bytes(const PackedMatrix& weight, int64_t m) {
    const MatmulKernel& kernel = weight.kernel();
    return kernel.prepared_row_bytes == nullptr ? 0 : static_cast<size_t>(m * kernel.prepared_row_bytes(weight.k()));
}

}  // namespace espalier::kernels
