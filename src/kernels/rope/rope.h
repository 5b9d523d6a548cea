// Rotary embedding, NeoX pairing, on the first 2 * n_pairs dimensions of each head (partial rotary):
//   y[i]           = x[i] * cos[i] - x[i + n_pairs] * sin[i]
//   y[i + n_pairs] = x[i + n_pairs] * cos[i] + x[i] * sin[i]          i < n_pairs; in place; the rest is untouched
// Two roundings per product pair: fma(x1, c, -(x2 * s)) and fma(x2, c, x1 * s).
// The caller computes cos and sin per position: angle = float(position) * inv_freq[i] in float (as the reference does).
// Flags: row_independent, same_bits.
#pragma once

#include <cstdint>

namespace espalier::kernels {

struct RopeArgs {
    float* x = nullptr;  // n_heads heads, head_stride floats apart
    int64_t n_heads = 0;
    int64_t head_stride = 0;
    const float* cos = nullptr;  // [n_pairs]
    const float* sin = nullptr;  // [n_pairs]
    int64_t n_pairs = 0;
};

using RopeFn = void (*)(const RopeArgs&) noexcept;

}  // namespace espalier::kernels
