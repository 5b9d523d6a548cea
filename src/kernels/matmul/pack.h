// Packing of weights into the panels that matmul kernels stream, and the choice of kernel per (layout, acts).
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/matmul/matmul.h"
#include "tensor/buffer.h"
#include "tensor/layout.h"

namespace espalier::kernels {

// One way to multiply one layout in one numerics mode. A constant; lives as long as the program.
struct MatmulKernel {
    const char* name = "";
    Isa isa = Isa::scalar;
    WeightLayout layout = WeightLayout::f32;
    Acts acts = Acts::a32;
    PrepareFn prepare = nullptr;                         // null: run reads float rows directly
    int64_t (*prepared_row_bytes)(int64_t k) = nullptr;  // null if prepare is null
    MatmulFn run = nullptr;
    int64_t input_columns = 0;  // prepare converts a multiple of so many columns at a time; 0: whole rows only
};

// A packed weight and the kernel that reads it. Move-only, immutable after pack. Several views with the same k may be packed as
// one (fused projections): their rows follow each other, each padded to whole panels is NOT done: rows are contiguous.
class PackedMatrix {
public:
    PackedMatrix() = default;
    // Packs views[0], views[1], … stacked along n. All must share layout, k, activation scheme and, in ckpt mode with a static
    // scheme, the input scale (else invalid_input: bind them separately). Parallel over panels. Errors: exhausted, unsupported
    // (declared inputs that have no product, k not a multiple of 16), corrupt_data (an FP8 code is NaN).
    static Result<PackedMatrix> pack(std::span<const WeightView> views, Acts acts, Isa isa, ThreadPool& pool);

    int64_t n() const { return view_.n; }
    int64_t k() const { return view_.k; }
    int64_t n_panels() const { return (view_.n + kPanelRows - 1) / kPanelRows; }
    WeightLayout layout() const { return layout_; }
    size_t bytes() const { return codes_.bytes() + scales_.bytes() + row_scales_.bytes(); }
    const MatmulKernel& kernel() const { return *kernel_; }
    const PackedView& view() const { return view_; }

    // Row r as floats, exactly as the weight means it (embedding lookup from a tied head). out: [k].
    void unpack_row(int64_t row, float* out) const;

private:
    PackedView view_;
    WeightLayout layout_ = WeightLayout::f32;
    const MatmulKernel* kernel_ = nullptr;
    Buffer codes_;
    Buffer scales_;
    Buffer row_scales_;
};

// The rows of one product.
struct MatmulRows {
    const float* x = nullptr;  // [m, k], row stride x_stride floats
    int64_t x_stride = 0;
    int64_t m = 0;
    float* y = nullptr;  // [m, n], row stride y_stride floats
    int64_t y_stride = 0;
    std::byte* scratch = nullptr;  // matmul_scratch_bytes(weight, m), 64-byte aligned
    Store store = Store::set;
};

// y = x W^T (or y += x W^T) over the pool. Allocates nothing.
void matmul(const PackedMatrix& weight, const MatmulRows& rows, ThreadPool& pool);
size_t matmul_scratch_bytes(const PackedMatrix& weight, int64_t m);

// The same in pieces, for callers that join a product with the work before and after it. Each runs on the calling thread.

// True if rows converted for one are what the other reads.
bool same_inputs(const PackedMatrix& a, const PackedMatrix& b);
// Rows and columns [begin, end) of x. Columns: a multiple of input_columns of the kernel, or up to the end of k.
struct InputPart {
    int64_t row_begin = 0;
    int64_t row_end = 0;
    int64_t k_begin = 0;
    int64_t k_end = 0;
};
// Converts a part of x into scratch; nothing where the kernel reads float rows.
void prepare_part(const PackedMatrix& weight, const MatmulRows& rows, const InputPart& part);
// Computes panels [panel_begin, panel_end) from converted rows.
void multiply_panels(const PackedMatrix& weight, const MatmulRows& rows, int64_t panel_begin, int64_t panel_end);
// Panels that are best computed by one call for m rows when n_threads share them.
int64_t panels_per_task(const PackedMatrix& weight, int64_t m, int64_t n_threads);

}  // namespace espalier::kernels
