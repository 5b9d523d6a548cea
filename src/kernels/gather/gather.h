// Row lookup in a weight as the checkpoint stores it: out[k] = float(row r). Plain code; no ISA variants.
#pragma once

#include <cstdint>

#include "tensor/layout.h"

namespace espalier::kernels {

// Supports every WeightLayout; r < weight.n. out: [weight.k].
void gather_row(const WeightView& weight, int64_t row, float* out);

// The multiplier of a whole row: row_scales (nvfp4, fp8_tensor) or scales (fp8_channel); 1 for the other layouts.
float row_scale(const WeightView& weight, int64_t row);

}  // namespace espalier::kernels
