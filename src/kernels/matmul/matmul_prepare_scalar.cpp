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
constexpr int64_t kI8Rows = kI8RowsScalar;
#include "kernels/matmul/prepare_body.inc"
// clang-format on

}  // namespace espalier::kernels::scalar
