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

// The best variant for (layout, acts) of tier <= isa, or null. For float layouts every mode is a32.
const MatmulKernel* find_matmul_kernel(WeightLayout layout, Acts acts, Isa isa);

}  // namespace espalier::kernels
