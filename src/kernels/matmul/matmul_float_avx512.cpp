#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace espalier::kernels::avx512 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx512.inc"
#include "kernels/vec/math_body.inc"
// clang-format on

// At most 24 of 32 registers of sums.
constexpr int kFloatRows = 12;
constexpr int64_t kFloatPanelGroup = 8;
static constexpr int float_panels(int rows) {
    return rows == 1 ? 8 : rows <= 6 ? 4 : 2;
}

#include "kernels/matmul/float_body.inc"

void matmul_f32_a32(const MatmulArgs& args) noexcept {
    matmul_float<FloatKind::f32, Scaling::plain>(args);
}
void matmul_bf16_a32(const MatmulArgs& args) noexcept {
    matmul_float<FloatKind::bf16, Scaling::plain>(args);
}

}  // namespace espalier::kernels::avx512
