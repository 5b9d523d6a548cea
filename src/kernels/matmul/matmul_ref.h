// matmul.h in double, y = x W^T, and what the modes make of inputs, one value at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "tensor/layout.h"

namespace espalier::kernels {

// x: [m, k], w: [n, k]. Returns [m, n].
std::vector<double> matmul_ref(std::span<const double> x, std::span<const float> w, int64_t m, int64_t n, int64_t k);

// The inputs [m, k] as `acts` means them for this weight (layout, activation scheme, input scale).
std::vector<double> inputs_ref(std::span<const float> x, int64_t m, const WeightView& weight, Acts acts);

// One group of 16 in static NVFP4: codes with sign, and the E4M3 block scale.
struct Nvfp4Group {
    uint8_t codes[16] = {};
    uint8_t scale = 0;
};
Nvfp4Group quantise_nvfp4_ref(std::span<const float> x, float input_scale);

}  // namespace espalier::kernels
