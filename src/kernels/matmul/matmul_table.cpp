#include "kernels/matmul/matmul_table.h"

#include <array>

namespace espalier::kernels {

#define ESPALIER_MATMUL(tier, layout, acts, prepare, row_bytes, run, flags) \
    namespace tier {                                                        \
    void run(const MatmulArgs&) noexcept;                                   \
    }
#include "kernels/matmul/table.inc"
#undef ESPALIER_MATMUL

namespace {

constexpr PrepareFn no_prepare = nullptr;
constexpr int64_t (*no_row_bytes)(int64_t) = nullptr;

constexpr MatmulVariant kVariants[] = {
#define ESPALIER_MATMUL(tier, weights, mode, prepare_fn, row_bytes_fn, run_fn, flag_bits)                                     \
    MatmulVariant{                                                                                                            \
        {#tier "/" #weights "/" #mode, Isa::tier, WeightLayout::weights, Acts::mode, prepare_fn, row_bytes_fn, tier::run_fn}, \
        flag_bits},
#include "kernels/matmul/table.inc"
#undef ESPALIER_MATMUL
};

bool is_float(WeightLayout layout) {
    return layout == WeightLayout::f32 || layout == WeightLayout::bf16 || layout == WeightLayout::f16;
}

}  // namespace

std::span<const MatmulVariant> matmul_variants() {
    return kVariants;
}

const MatmulKernel* find_matmul_kernel(WeightLayout layout, Acts acts, Isa isa) {
    if (is_float(layout)) acts = Acts::a32;
    const MatmulKernel* best = nullptr;
    for (const MatmulVariant& variant : kVariants) {
        const MatmulKernel& kernel = variant.kernel;
        if (kernel.layout == layout && kernel.acts == acts && kernel.isa <= isa) best = &kernel;
    }
    return best;
}

}  // namespace espalier::kernels
