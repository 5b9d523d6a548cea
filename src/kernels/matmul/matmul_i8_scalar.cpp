#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/prepared.h"

namespace espalier::kernels::scalar {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
#include "kernels/matmul/dot_scalar.inc"
#include "kernels/matmul/i8_body.inc"
// clang-format on

}  // namespace espalier::kernels::scalar
