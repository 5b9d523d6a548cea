// Root-mean-square norms. Formula (Zhang & Sennrich 2019; Gated DeltaNet's gated norm):
//   rmsnorm:       y = x * rsqrt(mean(x^2) + eps) * w            w is the effective weight (any "1 +" already added)
//   gated_rmsnorm: y = x * rsqrt(mean(x^2) + eps) * w * silu(z)  norm first, gate after
//   l2norm:        x <- x * rsqrt(sum(x^2) + eps) * scale        eps on the sum, not the mean
// All float. Sum of squares: 16 partial sums by index mod 16, reduced pairwise; rsqrt = 1 / sqrt (correctly rounded both).
// Any n >= 1. y may alias x exactly. Threading: none, callers split rows.
// Flags: row_independent, same_bits.
#pragma once

#include <cstdint>

namespace espalier::kernels {

struct NormArgs {
    const float* x = nullptr;  // [n_rows, n], row stride x_stride floats
    int64_t x_stride = 0;
    const float* z = nullptr;  // gated_rmsnorm only: [n_rows, n], row stride z_stride
    int64_t z_stride = 0;
    const float* weight = nullptr;  // [n]; l2norm: unused
    float* y = nullptr;             // [n_rows, n], row stride y_stride
    int64_t y_stride = 0;
    int64_t n_rows = 0;
    int64_t n = 0;
    float eps = 0;
    float scale = 1;  // l2norm only
};

using NormFn = void (*)(const NormArgs&) noexcept;

}  // namespace espalier::kernels
