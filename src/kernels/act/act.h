// Elementwise pieces of a step. All float, any n, callers split. Flags: row_independent, same_bits.
//   swiglu:        y = silu(gate) * up                silu(x) = x / (1 + exp(-x))
//   sigmoid_gate:  x = x * sigmoid(gate)              in place
//   add:           y = y + x
// exp is exp_poly, the one polynomial used by every variant of every op (range reduction by ln 2 in two parts, degree-6
// polynomial by Horner with fma, exponent by integer add; exp(0) = 1 exactly; below -87.3 gives 0; above 88.3 gives +inf;
// relative error under 2e-7; NaN stays NaN).
#pragma once

#include <cstdint>

namespace espalier::kernels {

struct SwigluArgs {
    const float* gate = nullptr;  // [n]
    const float* up = nullptr;    // [n]
    float* y = nullptr;           // [n], may alias gate or up
    int64_t n = 0;
};
using SwigluFn = void (*)(const SwigluArgs&) noexcept;

struct SigmoidGateArgs {
    float* x = nullptr;           // [n]
    const float* gate = nullptr;  // [n]
    int64_t n = 0;
};
using SigmoidGateFn = void (*)(const SigmoidGateArgs&) noexcept;

struct AddArgs {
    float* y = nullptr;
    const float* x = nullptr;
    int64_t n = 0;
};
using AddFn = void (*)(const AddArgs&) noexcept;

}  // namespace espalier::kernels
