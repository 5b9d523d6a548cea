#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace espalier::kernels::avx512 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx512.inc"
#include "kernels/vec/math_body.inc"
constexpr int kAttentionRows = 4;  // 4 x 4 sums are 16 of the 32 registers
constexpr int kAttentionVecs = 4;
#include "kernels/attention/attention_body.inc"
// clang-format on

}  // namespace espalier::kernels::avx512
