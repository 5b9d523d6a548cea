// Row lookup in a weight as the checkpoint stores it: out[k] = float(row r). Plain code; no ISA variants.
#pragma once

#include <cstdint>

#include "tensor/layout.h"

namespace espalier::kernels {

// Supports every WeightLayout; r < weight.n. out: [weight.k].
void gather_row(const WeightView& weight, int64_t row, float* out);

}  // namespace espalier::kernels
