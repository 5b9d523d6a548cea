#include "quant/weight_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "checkpoint/values.h"
#include "kernels/quantize/formats.h"

namespace espalier::quant {
namespace {

constexpr int64_t kBlock = 16;
constexpr float kE2m1Max = 6.0f;
constexpr float kE4m3Max = 448.0f;
constexpr float kE4m3Min = 0x1p-9f;
constexpr float kFp8AmaxMin = 1e-12f;

}  // namespace

float largest_magnitude(const float* x, int64_t n) {
    // As integers, magnitudes order like floats with infinities and NaN on top; unlike a float maximum this is one instruction.
    int32_t largest = 0;
    for (int64_t i = 0; i < n; ++i)
        largest = std::max(largest, static_cast<int32_t>(std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu));
    const float value = std::bit_cast<float>(largest);
    return std::isfinite(value) ? value : std::numeric_limits<float>::infinity();
}

float nvfp4_second_scale(float amax) {
    const float scale = amax / (kE2m1Max * kE4m3Max);
    return scale > 0 ? scale : 1.0f;
}

float fp8_scale(float amax) {
    const float scale = amax / kE4m3Max;
    return scale > 0 ? scale : 1.0f;
}

uint16_t fp8_block_scale(float amax) {
    return checkpoint::bf16_from_float(std::max(amax, kFp8AmaxMin) / kE4m3Max);
}

void quantize_nvfp4_row(const float* row, int64_t k, float second_scale, uint8_t* scales, uint8_t* codes) {
    for (int64_t block = 0; block < k / kBlock; ++block) {
        const float* x = row + block * kBlock;
        const float amax = largest_magnitude(x, kBlock);
        const float exact = amax / (kE2m1Max * second_scale);
        const uint8_t scale = kernels::encode_e4m3(exact == 0.0f ? 1.0f : std::clamp(exact, kE4m3Min, kE4m3Max));
        if (scales != nullptr) scales[block] = scale;
        if (codes == nullptr) continue;
        const float step = kernels::decode_e4m3(scale) * second_scale;
        uint8_t* out = codes + block * kBlock / 2;
        for (int64_t i = 0; i < kBlock / 2; ++i) {
            const int low = kernels::encode_e2m1(x[2 * i] / step);
            const int high = kernels::encode_e2m1(x[2 * i + 1] / step);
            out[i] = static_cast<uint8_t>(low | high << 4);
        }
    }
}

void quantize_fp8_row(const float* row, int64_t k, float scale, Quotient quotient, uint8_t* codes) {
    for (int64_t i = 0; i < k; ++i) {
        float y = row[i] / scale;
        if (quotient == Quotient::rounded_to_bf16) y = checkpoint::float_from_bf16(checkpoint::bf16_from_float(y));
        codes[i] = kernels::encode_e4m3(y);
    }
}

}  // namespace espalier::quant
