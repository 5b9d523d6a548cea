#include "checkpoint/values.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace espalier::checkpoint {

float float_from_bf16(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float float_from_f16(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const int exponent = (bits >> 10) & 0x1f;
    const uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(fraction | 0x400u), exponent - 25);
    return sign != 0 ? -magnitude : magnitude;
}

float float_from_e4m3(uint8_t bits) {
    const int exponent = (bits >> 3) & 0xf;
    const int fraction = bits & 7;
    if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                          : std::ldexp(static_cast<float>(fraction | 8), exponent - 10);
    return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

std::vector<float> read_floats(Dtype dtype, std::span<const std::byte> data) {
    CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16, "read_floats of a type that is not float");
    std::vector<float> values(data.size() / dtype_bytes(dtype));
    if (dtype == Dtype::f32) {
        if (!values.empty()) std::memcpy(values.data(), data.data(), values.size() * sizeof(float));
        return values;
    }
    for (size_t i = 0; i < values.size(); ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, data.data() + 2 * i, 2);
        values[i] = dtype == Dtype::bf16 ? float_from_bf16(bits) : float_from_f16(bits);
    }
    return values;
}

float multiplier_from_divisor(float divisor) {
    const float plain = 1.0f / divisor;
    const float maximum = float_from_bf16(bf16_from_float(static_cast<float>(2688.0 / static_cast<double>(divisor))));
    const float multiplier = maximum / 2688.0f;
    const bool reproduces = 1.0f / multiplier == divisor || 2688.0f / maximum == divisor;
    return std::isfinite(multiplier) && multiplier > 0 && reproduces ? multiplier : plain;
}

}  // namespace espalier::checkpoint
