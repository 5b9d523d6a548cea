#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/prepared.h"

namespace espalier::kernels::avx2 {

// Each file builds on those before it.
// clang-format off
#include "kernels/matmul/dot_avx2.inc"
#include "kernels/matmul/i8_body.inc"
// clang-format on

}  // namespace espalier::kernels::avx2
