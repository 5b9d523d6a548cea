#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/prepared.h"

namespace espalier::kernels::avx2 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx2.inc"
#include "kernels/vec/math_body.inc"
constexpr int64_t kI8Rows = kI8RowsAvx2;
#include "kernels/matmul/prepare_body.inc"
// clang-format on

}  // namespace espalier::kernels::avx2
