#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace espalier::kernels::avx2 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx2.inc"
#include "kernels/vec/math_body.inc"
// clang-format on

// Two registers per vector: at most 12 of 16 registers of sums.
constexpr int kFloatRows = 6;
constexpr int64_t kFloatPanelGroup = 8;
static constexpr int float_panels(int rows) {
    return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

#include "kernels/matmul/float_body.inc"

void matmul_f32_a32(const MatmulArgs& args) noexcept {
    matmul_float<FloatKind::f32, Scaling::plain>(args);
}
void matmul_bf16_a32(const MatmulArgs& args) noexcept {
    matmul_float<FloatKind::bf16, Scaling::plain>(args);
}

}  // namespace espalier::kernels::avx2
