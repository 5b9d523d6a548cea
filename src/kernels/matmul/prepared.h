// What prepared rows look like. Plain declarations and constants: ISA files include this.
#pragma once

#include <cstdint>

namespace espalier::kernels {

inline constexpr int64_t kScaleBlockK = 128;  // k that share a scale in fp8_block, and a factor in a prepared float row

// 16 consecutive k of one row as int8. Codes of 8 k are stored evens first, as the nibbles of 4 weight bytes come apart.
struct I8Group {
    int8_t codes[16];
    int32_t bias;  // -12 * sum of codes: takes back the 12 that makes weight codes unsigned
    float factor;  // of this group's products
};

// constexpr functions of these names would be inline functions with one copy per program, which may not come from a file built
// for a higher tier; static ones are private to each file.
static constexpr int64_t scale_blocks(int64_t k) {
    return (k + kScaleBlockK - 1) / kScaleBlockK;
}
// k floats, then one factor per 128 k, padded to a cache line.
static constexpr int64_t float_row_bytes(int64_t k) {
    return (4 * (k + scale_blocks(k)) + 63) / 64 * 64;
}
static constexpr int64_t i8_row_bytes(int64_t k) {
    return (k / 16 * static_cast<int64_t>(sizeof(I8Group)) + 63) / 64 * 64;
}

}  // namespace espalier::kernels
