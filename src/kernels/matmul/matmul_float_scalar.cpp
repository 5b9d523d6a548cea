#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul/matmul.h"

namespace espalier::kernels::scalar {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
// clang-format on

constexpr int kFloatRows = 2;
constexpr int64_t kFloatPanelGroup = 1;
static constexpr int float_panels(int) {
    return 1;
}

#include "kernels/matmul/float_body.inc"

void matmul_f32_a32(const MatmulArgs& args) noexcept {
    matmul_float<FloatKind::f32, Scaling::plain>(args);
}
void matmul_bf16_a32(const MatmulArgs& args) noexcept {
    matmul_float<FloatKind::bf16, Scaling::plain>(args);
}

}  // namespace espalier::kernels::scalar
