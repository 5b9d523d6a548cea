// The OCP number formats, one value at a time: for loading, packing and tests. Not for ISA files (inline functions).
//   E2M1: 0 .5 1 1.5 2 3 4 6 with a sign bit on top of 3 bits.
//   E4M3: 4 exponent bits (bias 7), 3 mantissa bits, no infinity, 0x7f and 0xff are NaN, largest 448.
// Encoders round to nearest, ties to the even code, and saturate.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace espalier::kernels {

inline float decode_e2m1(uint8_t code) {
    constexpr float kValues[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    const float magnitude = kValues[code & 7];
    return (code & 8) != 0 ? -magnitude : magnitude;
}

// Negative values keep their sign when they round to zero (code 8); -0 gives code 0. NaN gives 6.
inline uint8_t encode_e2m1(float x) {
    const float a = std::fabs(x);
    // Midpoints; those that round up (to the even code) are compared with >=.
    const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    const uint8_t magnitude = std::isnan(x) ? 7 : static_cast<uint8_t>(code);
    return static_cast<uint8_t>(magnitude | (x < 0.0f ? 8 : 0));
}

inline float decode_e4m3(uint8_t code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    float magnitude;
    if ((code & 0x7f) == 0x7f) {
        magnitude = std::numeric_limits<float>::quiet_NaN();
    } else if (exponent == 0) {
        magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    } else {
        magnitude = std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23 | static_cast<uint32_t>(mantissa) << 20);
    }
    return (code & 0x80) != 0 ? -magnitude : magnitude;
}

inline uint8_t encode_e4m3(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = bits >> 24 & 0x80u;
    if (std::isnan(x)) return static_cast<uint8_t>(sign | 0x7fu);
    const float a = std::fmin(std::fabs(x), 448.0f);
    uint32_t code;
    if (a < 0x1p-6f) {
        code = static_cast<uint32_t>(std::nearbyint(a * 512.0f));
    } else {
        const uint32_t a_bits = std::bit_cast<uint32_t>(a);
        code = ((a_bits + 0x7ffffu + (a_bits >> 20 & 1u)) >> 20) - 120 * 8;
    }
    return static_cast<uint8_t>(sign | code);
}

inline float decode_bf16(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Exact for every half, including subnormals and NaN.
inline float decode_f16(uint16_t bits) {
    const uint32_t magnitude = bits & 0x7fffu;
    float x;
    if (magnitude >= 0x7c00u) {
        x = std::bit_cast<float>((magnitude << 13) + (224u << 23));
    } else if (magnitude >= 0x400u) {
        x = std::bit_cast<float>((magnitude << 13) + (112u << 23));
    } else {
        x = static_cast<float>(magnitude) * 0x1p-24f;
    }
    return (bits & 0x8000u) != 0 ? -x : x;
}

}  // namespace espalier::kernels
