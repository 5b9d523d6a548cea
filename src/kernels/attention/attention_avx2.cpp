#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace espalier::kernels::avx2 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx2.inc"
#include "kernels/vec/math_body.inc"
constexpr int kAttentionRows = 2;  // 2 x 2 sums are 8 of the 16 registers
constexpr int kAttentionVecs = 2;
#include "kernels/attention/attention_body.inc"
// clang-format on

}  // namespace espalier::kernels::avx2
