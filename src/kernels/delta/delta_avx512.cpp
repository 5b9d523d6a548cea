#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/delta/delta.h"

namespace espalier::kernels::avx512 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx512.inc"
#include "kernels/vec/math_body.inc"
constexpr int kDeltaVecs = 2;
constexpr bool kDeltaJoined = true;
#include "kernels/delta/delta_body.inc"
// clang-format on

}  // namespace espalier::kernels::avx512
