// The rows of the kernel tables, for dispatch, tests and benchmarks.
#pragma once

#include <span>
#include <string_view>

#include "kernels/dispatch.h"

namespace espalier::kernels {

enum KernelFlags : unsigned {
    kRowIndependent = 1,  // a row's result does not depend on the rows beside it
    kSameBits = 2,        // the same bits as every other variant with this flag
};

// One row: `table` has exactly one function set, that of this variant.
struct KernelVariant {
    std::string_view op;
    Isa isa = Isa::scalar;
    unsigned flags = 0;
    KernelTable table;
};

// In table order: by op, ascending in isa. Includes tiers that this CPU cannot run (see available_isas).
std::span<const KernelVariant> kernel_variants();

}  // namespace espalier::kernels
