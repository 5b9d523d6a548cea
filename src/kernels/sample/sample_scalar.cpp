#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/sample/sample.h"

namespace espalier::kernels::scalar {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
#include "kernels/sample/sample_body.inc"
// clang-format on

}  // namespace espalier::kernels::scalar
