#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace espalier::kernels::avx512 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx512.inc"
#include "kernels/vec/math_body.inc"
// clang-format on

// At most 16 of 32 registers of sums: decoding takes more of them than float weights do.
constexpr int kFloatRows = 8;
constexpr int64_t kFloatPanelGroup = 8;
static constexpr int float_panels(int rows) {
    return rows <= 2 ? 4 : 2;
}

#include "kernels/matmul/float_body.inc"
#include "kernels/matmul/float_quant_body.inc"

}  // namespace espalier::kernels::avx512
