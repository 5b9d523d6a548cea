#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace espalier::kernels::avx2 {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_avx2.inc"
#include "kernels/vec/math_body.inc"
// clang-format on

// Two registers per vector; decoding takes more of them than float weights do.
constexpr int kFloatRows = 4;
constexpr int64_t kFloatPanelGroup = 8;
static constexpr int float_panels(int rows) {
    return rows == 1 ? 2 : 1;
}

#include "kernels/matmul/float_body.inc"
#include "kernels/matmul/float_quant_body.inc"

}  // namespace espalier::kernels::avx2
