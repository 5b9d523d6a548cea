#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/prepared.h"

namespace espalier::kernels::avxvnni {

// Each file builds on those before it.
// clang-format off
#include "kernels/matmul/dot_avxvnni.inc"
#include "kernels/matmul/i8_body.inc"
// clang-format on

}  // namespace espalier::kernels::avxvnni
