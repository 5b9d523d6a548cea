// Reductions over one row of logits. Flags: row_independent, same_bits.
//   argmax: the highest value's index, the lowest index among equals; NaN never wins (all NaN: 0).
#pragma once

#include <cstdint>

namespace espalier::kernels {

struct ArgmaxArgs {
    const float* x = nullptr;  // [n]
    int64_t n = 0;
    float* value = nullptr;    // out
    int64_t* index = nullptr;  // out
};
using ArgmaxFn = void (*)(const ArgmaxArgs&) noexcept;

}  // namespace espalier::kernels
