#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/delta/delta.h"

namespace espalier::kernels::scalar {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
constexpr int kDeltaVecs = 1;
constexpr bool kDeltaJoined = true;
#include "kernels/delta/delta_body.inc"
// clang-format on

}  // namespace espalier::kernels::scalar
