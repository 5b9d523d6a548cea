#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/prepared.h"

namespace espalier::kernels::avx512 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx512.inc"
#include "kernels/vec/math_body.inc"
constexpr int64_t kI8Rows = kI8RowsAvx512;
#include "kernels/matmul/prepare_body.inc"
// clang-format on

}  // namespace espalier::kernels::avx512
