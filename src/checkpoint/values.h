// Reading single numbers of the stored types, and the scales of quantised weights.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/layout.h"

namespace espalier::checkpoint {

float float_from_bf16(uint16_t bits);
float float_from_f16(uint16_t bits);
// E4M3 without infinities: 0x7f and 0xff are NaN.
float float_from_e4m3(uint8_t bits);
// Round to nearest, ties to even. NaN stays NaN. Inline: called for every value of an expanded weight.
inline uint16_t bf16_from_float(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Values of an f32, bf16 or f16 tensor (other types: CHECK); the bytes may have any alignment.
std::vector<float> read_floats(Dtype dtype, std::span<const std::byte> data);

// The second-level scale that multiplies, from the divisor that compressed-tensors stores. 1/divisor costs a rounding, so the
// same weights would differ in the last bit between the two spellings of NVFP4. Both spellings come from a BF16 maximum a: the
// multiplier is a/2688 (2688 = 6 x 448), the divisor 2688/a or 1/(a/2688). When such an `a` reproduces the divisor exactly, its
// multiplier is returned, else 1/divisor.
float multiplier_from_divisor(float divisor);

}  // namespace espalier::checkpoint
