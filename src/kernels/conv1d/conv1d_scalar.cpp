#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/conv1d/conv1d.h"

namespace espalier::kernels::scalar {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
#include "kernels/conv1d/conv1d_body.inc"
// clang-format on

}  // namespace espalier::kernels::scalar
