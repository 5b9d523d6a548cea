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
};

// y = x W^T over the pool. Allocates nothing.
void matmul(const PackedMatrix& weight, const MatmulRows& rows, ThreadPool& pool);
size_t matmul_scratch_bytes(const PackedMatrix& weight, int64_t m);

}  // namespace espalier::kernels
