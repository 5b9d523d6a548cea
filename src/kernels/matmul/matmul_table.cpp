#include "kernels/matmul/matmul_table.h"

#include <cstddef>
#include <string>

#include "kernels/matmul/prepared.h"

namespace espalier::kernels {

#define ESPALIER_PREPARE(tier)                            \
    namespace tier {                                      \
    void prepare_a16(const PrepareArgs&) noexcept;        \
    void prepare_fp8_row(const PrepareArgs&) noexcept;    \
    void prepare_fp8_block(const PrepareArgs&) noexcept;  \
    void prepare_nvfp4_a8(const PrepareArgs&) noexcept;   \
    void prepare_nvfp4_ckpt(const PrepareArgs&) noexcept; \
    }
ESPALIER_PREPARE(scalar)
#ifdef __x86_64__
ESPALIER_PREPARE(avx2)
ESPALIER_PREPARE(avx512)
#endif
#undef ESPALIER_PREPARE

#define ESPALIER_MATMUL(tier, layout, acts, prepare, row_bytes, columns, run, flags) \
    namespace tier {                                                                 \
    void run(const MatmulArgs&) noexcept;                                            \
    }
#include "kernels/matmul/table.inc"
#undef ESPALIER_MATMUL

namespace {

constexpr std::nullptr_t none = nullptr;

constexpr MatmulVariant kVariants[] = {
#define ESPALIER_MATMUL(tier, weights, mode, prepare_fn, row_bytes_fn, n_columns, run_fn, flag_bits)                     \
    MatmulVariant{{#tier "/" #weights "/" #mode, Isa::tier, WeightLayout::weights, Acts::mode, prepare_fn, row_bytes_fn, \
                   tier::run_fn, n_columns},                                                                             \
                  flag_bits},
#include "kernels/matmul/table.inc"
#undef ESPALIER_MATMUL
};

}  // namespace

std::span<const MatmulVariant> matmul_variants() {
    return kVariants;
}

const MatmulKernel* find_matmul_kernel(WeightLayout layout, Acts acts, Isa isa) {
    const MatmulKernel* best = nullptr;
    for (const MatmulVariant& variant : kVariants) {
        const MatmulKernel& kernel = variant.kernel;
        if (kernel.layout == layout && kernel.acts == acts && kernel.isa <= isa) best = &kernel;
    }
    return best;
}

Result<Acts> effective_acts(const WeightView& weight, Acts acts) {
    const auto undeclared = [&] {
        return unsupported("weights in " + std::string(to_string(weight.layout)) + " with inputs in " +
                           std::string(to_string(weight.activations)) + " have no product; choose other numerics with --acts");
    };
    switch (weight.layout) {
        case WeightLayout::f32:
        case WeightLayout::bf16:
        case WeightLayout::f16: return Acts::a32;
        case WeightLayout::nvfp4:
            if (acts != Acts::ckpt) return acts;
            if (weight.activations == ActivationScheme::none) return Acts::a32;
            if (weight.activations != ActivationScheme::nvfp4_static) return undeclared();
            return acts;
        case WeightLayout::fp8_tensor:
        case WeightLayout::fp8_channel:
            if (acts == Acts::a8) return Acts::a16;
            if (acts != Acts::ckpt) return acts;
            if (weight.activations == ActivationScheme::none) return Acts::a32;
            if (weight.activations != ActivationScheme::fp8_static && weight.activations != ActivationScheme::fp8_dynamic_token) {
                return undeclared();
            }
            return acts;
        case WeightLayout::fp8_block:
            if (acts == Acts::a8) return Acts::a16;
            if (acts != Acts::ckpt) return acts;
            if (weight.activations == ActivationScheme::none) return Acts::a32;
            if (weight.activations != ActivationScheme::fp8_dynamic_block) return undeclared();
            return acts;
    }
    return undeclared();
}

}  // namespace espalier::kernels
