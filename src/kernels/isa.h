// Instruction-set tiers. Plain declarations only: ISA-specific files include this.
#pragma once

namespace espalier::kernels {

// Ascending; a tier may use everything below it. avx2 = AVX2 + FMA + F16C; avxvnni = avx2 + AVX-VNNI (256 bit);
// avx512 = F, BW, VL, DQ, CD, VNNI; amx = avx512 + AVX512_BF16 + AMX tile, int8, bf16.
enum class Isa { scalar, avx2, avxvnni, avx512, amx };

}  // namespace espalier::kernels
