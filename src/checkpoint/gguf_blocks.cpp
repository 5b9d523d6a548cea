#include "checkpoint/gguf_blocks.h"

#include <cmath>

#include "base/check.h"
#include "checkpoint/values.h"

namespace espalier::checkpoint {
namespace {

// Block functions: one block's bytes to its 32 or 256 values.
using Expand = void (*)(const uint8_t* block, float* out);

constexpr int kSmallBlock = 32;
constexpr int kLargeBlock = 256;
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

uint16_t load_u16(const uint8_t* bytes) {
    return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

uint32_t load_u32(const uint8_t* bytes) {
    return uint32_t{load_u16(bytes)} | uint32_t{load_u16(bytes + 2)} << 16;
}

float load_half(const uint8_t* bytes) {
    return float_from_f16(load_u16(bytes));
}

void expand_q8_0(const uint8_t* block, float* out) {
    const float d = load_half(block);
    for (int i = 0; i < kSmallBlock; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// 16 bytes of codes: low halves are values 0 to 15, high halves 16 to 31.
template <class Value>
void expand_halves(const uint8_t* codes, float* out, Value value) {
    for (int i = 0; i < kSmallBlock / 2; ++i) {
        out[i] = value(codes[i] & 0xf, i);
        out[i + kSmallBlock / 2] = value(codes[i] >> 4, i + kSmallBlock / 2);
    }
}

void expand_q4_0(const uint8_t* block, float* out) {
    const float d = load_half(block);
    expand_halves(block + 2, out, [&](int code, int) { return d * static_cast<float>(code - 8); });
}

void expand_q4_1(const uint8_t* block, float* out) {
    const float d = load_half(block);
    const float m = load_half(block + 2);
    expand_halves(block + 4, out, [&](int code, int) { return d * static_cast<float>(code) + m; });
}

// Bit i of `high` is the fifth bit of value i.
int with_fifth_bit(int code, uint32_t high, int i) {
    return code | static_cast<int>(high >> i & 1) << 4;
}

void expand_q5_0(const uint8_t* block, float* out) {
    const float d = load_half(block);
    const uint32_t high = load_u32(block + 2);
    expand_halves(block + 6, out, [&](int code, int i) { return d * static_cast<float>(with_fifth_bit(code, high, i) - 16); });
}

void expand_q5_1(const uint8_t* block, float* out) {
    const float d = load_half(block);
    const float m = load_half(block + 2);
    const uint32_t high = load_u32(block + 4);
    expand_halves(block + 8, out, [&](int code, int i) { return d * static_cast<float>(with_fifth_bit(code, high, i)) + m; });
}

// A power of two (the byte is its exponent, biased by 127) and sixteen bytes of E2M1 codes, whose values are doubled in the
// table.
void expand_mxfp4(const uint8_t* block, float* out) {
    constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const float half = std::ldexp(1.0f, block[0] - 128);
    expand_halves(block + 1, out, [&](int code, int) { return half * static_cast<float>(kDoubled[code]); });
}

void expand_iq4_nl(const uint8_t* block, float* out) {
    const float d = load_half(block);
    expand_halves(block + 2, out, [&](int code, int) { return d * static_cast<float>(kIq4Values[code]); });
}

struct ScaleAndMin {
    int scale = 0;
    int min = 0;
};

// Eight 6-bit scales and eight 6-bit minima in 12 bytes: the first four of each in the low bits of bytes 0 to 7, whose upper two
// bits go on top of the nibbles of bytes 8 to 11, which are the last four.
ScaleAndMin k_scale(const uint8_t* packed, int i) {
    if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
    return {(packed[i + 4] & 0xf) | packed[i - 4] >> 6 << 4, packed[i + 4] >> 4 | packed[i] >> 6 << 4};
}

// Pairs of 32 values share 32 bytes: the first has the low halves. `high` has the fifth bits, one bit plane per 32 values; null
// for 4-bit codes.
void expand_k_pairs(const uint8_t* block, const uint8_t* high, const uint8_t* codes, float* out) {
    const float d = load_half(block);
    const float d_min = load_half(block + 2);
    for (int group = 0; group < kLargeBlock / 32; ++group) {
        const auto [scale, min] = k_scale(block + 4, group);
        const float step = d * static_cast<float>(scale);
        const float offset = d_min * static_cast<float>(min);
        for (int i = 0; i < 32; ++i) {
            int code = codes[group / 2 * 32 + i] >> (group % 2 * 4) & 0xf;
            if (high != nullptr) code |= (high[i] >> group & 1) << 4;
            out[group * 32 + i] = step * static_cast<float>(code) - offset;
        }
    }
}

void expand_q4_k(const uint8_t* block, float* out) {
    expand_k_pairs(block, nullptr, block + 16, out);
}

void expand_q5_k(const uint8_t* block, float* out) {
    expand_k_pairs(block, block + 16, block + 48, out);
}

// Two halves of 128 values in 32 bytes each, four bit planes of two; a byte of scale and minimum per 16 values.
void expand_q2_k(const uint8_t* block, float* out) {
    const float d = load_half(block + 80);
    const float d_min = load_half(block + 82);
    for (int i = 0; i < kLargeBlock; ++i) {
        const int code = block[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        const int scale = block[i / 16];
        out[i] = d * static_cast<float>(scale & 0xf) * static_cast<float>(code) - d_min * static_cast<float>(scale >> 4);
    }
}

// The same two-bit codes, 4 less where the value's bit of the mask is clear. Sixteen 6-bit scales: low halves in bytes 0 to 7
// (the first eight in the low nibbles), upper two bits in bytes 8 to 11.
void expand_q3_k(const uint8_t* block, float* out) {
    const float d = load_half(block + 108);
    const uint8_t* scales = block + 96;
    for (int i = 0; i < kLargeBlock; ++i) {
        const int group = i / 16;
        const int low = scales[group % 8] >> (group / 8 * 4) & 0xf;
        const int scale = low | (scales[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
        const int code = block[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        const int offset = (block[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4;
        out[i] = d * static_cast<float>(scale - 32) * static_cast<float>(code - offset);
    }
}

// Two halves of 128 values: 64 bytes of low four bits, 32 bytes of upper two, a scale per 16 values.
void expand_q6_k(const uint8_t* block, float* out) {
    const float d = load_half(block + 208);
    for (int half = 0; half < 2; ++half) {
        const uint8_t* low = block + half * 64;
        const uint8_t* high = block + 128 + half * 32;
        const uint8_t* scales = block + 192 + half * 8;
        for (int i = 0; i < 128; ++i) {
            const int plane = i / 32;
            const int nibble = low[i % 64] >> (i / 64 * 4) & 0xf;
            const int code = nibble | (high[i % 32] >> (2 * plane) & 3) << 4;
            const float step = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
            out[half * 128 + i] = step * static_cast<float>(code - 32);
        }
    }
}

void expand_iq4_xs(const uint8_t* block, float* out) {
    const float d = load_half(block);
    const int scales_high = load_u16(block + 2);
    for (int group = 0; group < kLargeBlock / 32; ++group) {
        const int low = block[4 + group / 2] >> (group % 2 * 4) & 0xf;
        const int scale = low | (scales_high >> (2 * group) & 3) << 4;
        const float step = d * static_cast<float>(scale - 32);
        expand_halves(block + 8 + group * 16, out + group * 32,
                      [&](int code, int) { return step * static_cast<float>(kIq4Values[code]); });
    }
}

Expand expander_of(const GgufTensorType& type) {
    struct Entry {
        std::string_view name;
        Expand expand;
    };
    constexpr Entry kExpanders[] = {{"Q8_0", expand_q8_0},     {"Q4_0", expand_q4_0}, {"Q4_1", expand_q4_1},
                                    {"Q5_0", expand_q5_0},     {"Q5_1", expand_q5_1}, {"IQ4_NL", expand_iq4_nl},
                                    {"Q4_K", expand_q4_k},     {"Q5_K", expand_q5_k}, {"Q6_K", expand_q6_k},
                                    {"IQ4_XS", expand_iq4_xs}, {"Q2_K", expand_q2_k}, {"Q3_K", expand_q3_k},
                                    {"MXFP4", expand_mxfp4}};
    for (const auto& entry : kExpanders) {
        if (entry.name == type.name) return entry.expand;
    }
    return nullptr;
}

}  // namespace

bool can_expand(const GgufTensorType& type) {
    return expander_of(type) != nullptr;
}

void expand_gguf_blocks(const GgufTensorType& type, std::span<const std::byte> data, std::span<float> out) {
    const Expand expand = expander_of(type);
    const auto n_values = static_cast<size_t>(type.block_values);
    const auto n_bytes = static_cast<size_t>(type.block_bytes);
    CHECK(expand != nullptr, "callers ask can_expand first");
    CHECK(out.size() % n_values == 0 && data.size() == out.size() / n_values * n_bytes, "whole blocks");
    const auto* block = reinterpret_cast<const uint8_t*>(data.data());
    for (size_t i = 0; i < out.size(); i += n_values, block += n_bytes) expand(block, out.data() + i);
}

void split_nvfp4_row(std::span<const std::byte> row, std::span<std::byte> codes, std::span<std::byte> scales) {
    constexpr size_t kGroups = 4;
    constexpr size_t kGroupBytes = 8;
    constexpr size_t kBlockBytes = kGroups + kGroups * kGroupBytes;
    CHECK(row.size() % kBlockBytes == 0 && scales.size() == row.size() / kBlockBytes * kGroups, "whole blocks");
    CHECK(codes.size() == scales.size() * kGroupBytes, "half a byte per value");
    for (size_t group = 0; group < scales.size(); ++group) {
        const auto* block = reinterpret_cast<const uint8_t*>(row.data()) + group / kGroups * kBlockBytes;
        const uint8_t* packed = block + kGroups + group % kGroups * kGroupBytes;
        const auto code = [&](size_t i) { return i < kGroupBytes ? packed[i] & 0xf : packed[i - kGroupBytes] >> 4; };
        scales[group] = static_cast<std::byte>(block[group % kGroups]);
        for (size_t i = 0; i < kGroupBytes; ++i)
            codes[group * kGroupBytes + i] = static_cast<std::byte>(code(2 * i) | code(2 * i + 1) << 4);
    }
}

}  // namespace espalier::checkpoint
