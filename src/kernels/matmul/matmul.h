// y[m, n] = x[m, k] * W[n, k]^T, W packed once at load.
//
// Two steps, so that rows are converted once and used by every tile: `prepare` turns float rows into what the kernel reads
// (identity for a32, int8 + block scales for a8, …), `run` computes output panels [panel_begin, panel_end) of all rows.
// Callers split rows and columns for prepare and panels for run over threads. A panel is kPanelRows outputs.
//
// Row r, output n is the same bits whatever m, the panel split and the other rows are: the sum over k has one fixed order.
//   float products (a32, a16, and ckpt of FP8): blocks of 64 k; inside a block fused in ascending k from 0. Weights in a32 are
//   the
//     exact values rounded to float, block sums are added in ascending order; otherwise weights are codes (NVFP4: times the block
//     scale) and total = fma(block sum, scale * input factor, total).
//   NVFP4 with int8 inputs: exact int32 sums of 16 k, in ascending k; at last acc * row_scale.
//     a8    one input factor for 64 k: t = sum * block scale, then t = fma(sum, block scale, t) for the further groups;
//           acc = fma(t, input factor, acc)
//     ckpt  one input factor for 16 k: acc = fma(sum, block scale * input factor, acc)
// What inputs become is in prepare_body.inc. FP8 weights have no integer product: a8 is a16 for them. ckpt is a32 where the
// checkpoint declares nothing, float weights are a32 in every mode (effective_acts).
// Any m >= 1, any n (the last panel is padded with zero rows), k a multiple of 16 (quantised layouts: of their block).
// Flags: row_independent; same_bits for every variant of one (layout, acts) pair unless its table line says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"

namespace espalier::kernels {

inline constexpr int64_t kPanelRows = 16;

// What enters the product. a32: float. a16: BF16. a8: int8 per row and block. ckpt: what the checkpoint declares.
enum class Acts : uint8_t { a32, a16, a8, ckpt };

struct PackedWeight;  // pack.h; opaque to ISA files beyond the fields of PackedView

// What a kernel reads of a packed weight. Pointers are 64-byte aligned.
struct PackedView {
    const void* codes = nullptr;       // panels, layout by kernel
    const void* scales = nullptr;      // block scales in panel order (nvfp4: E4M3, fp8_block: float), or null
    const float* row_scale = nullptr;  // [n padded]: multiplier of a whole row (nvfp4, fp8_tensor, fp8_channel), or null
    int64_t n = 0;
    int64_t k = 0;
    float input_scale = 0;  // static activation scale, 0 = none
};

struct PrepareArgs {
    const PackedView* weight = nullptr;
    const float* x = nullptr;  // [m, k], row stride x_stride
    int64_t x_stride = 0;
    int64_t m = 0;          // rows of the product: where a row lies among the prepared ones depends on it
    int64_t row_begin = 0;  // rows to convert
    int64_t row_end = 0;
    int64_t k_begin = 0;  // columns to convert: multiples of the table's `columns`, or up to the end of k
    int64_t k_end = 0;
    void* prepared = nullptr;  // m * prepared_row_bytes, 64-byte aligned
};
using PrepareFn = void (*)(const PrepareArgs&) noexcept;

// y = product, or y = y + product.
enum class Store : uint8_t { set, add };

struct MatmulArgs {
    const PackedView* weight = nullptr;
    const void* prepared = nullptr;  // what prepare made of the m rows, or float rows
    int64_t prepared_stride = 0;     // of float rows: bytes between them
    int64_t m = 0;
    int64_t panel_begin = 0;
    int64_t panel_end = 0;
    float* y = nullptr;  // [m, n], row stride y_stride floats; only columns < n are written
    int64_t y_stride = 0;
    Store store = Store::set;
};
using MatmulFn = void (*)(const MatmulArgs&) noexcept;

}  // namespace espalier::kernels
