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
#include "kernels/matmul/float_quant_body.inc"

}  // namespace espalier::kernels::scalar
