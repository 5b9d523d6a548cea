// The rows of matmul/table.inc, for the choice in pack, for tests and for benchmarks.
#pragma once

#include <span>

#include "kernels/matmul/pack.h"
#include "kernels/variants.h"

namespace espalier::kernels {

struct MatmulVariant {
    MatmulKernel kernel;
    unsigned flags = 0;
};

// In table order (ascending in isa), including tiers that this CPU cannot run.
std::span<const MatmulVariant> matmul_variants();

// The best variant for (layout, acts) of tier <= isa, or null.
const MatmulKernel* find_matmul_kernel(WeightLayout layout, Acts acts, Isa isa);

// The mode in which a weight is multiplied when `acts` is asked for: float weights always in a32; FP8 in a16 for a8 (no integer
// product); ckpt is a32 where the checkpoint declares nothing. Errors: unsupported, for declared inputs that have no product.
Result<Acts> effective_acts(const WeightView& weight, Acts acts);

}  // namespace espalier::kernels
