#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/delta/delta.h"

namespace espalier::kernels::avx2 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx2.inc"
#include "kernels/vec/math_body.inc"
constexpr int kDeltaVecs = 1;  // 4 partial sums are 8 of the 16 registers
constexpr bool kDeltaJoined = false;
#include "kernels/delta/delta_body.inc"
// clang-format on

}  // namespace espalier::kernels::avx2
