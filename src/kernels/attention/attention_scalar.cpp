#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention.h"

namespace espalier::kernels::scalar {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
constexpr int kAttentionRows = 1;
constexpr int kAttentionVecs = 1;
#include "kernels/attention/attention_body.inc"
// clang-format on

}  // namespace espalier::kernels::scalar
