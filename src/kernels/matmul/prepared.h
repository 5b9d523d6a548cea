// What prepared rows look like. Plain declarations and constants: ISA files include this.
#pragma once

#include <cstdint>

namespace espalier::kernels {

inline constexpr int64_t kScaleBlockK = 128;  // k that share a scale in fp8_block, and a factor in a prepared float row
inline constexpr int64_t kI8BlockK = 64;

// 64 consecutive k of one row as int8 (fewer at the end of k; what is behind them is not read). Codes of 8 k are stored evens
// first, as the nibbles of 4 weight bytes come apart.
struct I8Block {
    int8_t codes[kI8BlockK];
    int32_t bias[kI8BlockK / 16];  // per 16 k: -12 * sum of codes, takes back the 12 that makes weight codes unsigned
    float factor[kI8BlockK / 16];  // ckpt: of the products of 16 k; a8: the first, of all
};

// Integer rows go through a kernel in tiles of nearly equal size: 13 rows are 7 and 6, not 12 and 1. The blocks of a tile's rows
// lie side by side, [block of k][row], so that a tile reads one stream and its rows are a constant apart.
struct RowTile {
    int64_t begin;  // row
    int64_t n;
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
static constexpr int64_t i8_blocks(int64_t k) {
    return (k + kI8BlockK - 1) / kI8BlockK;
}
static constexpr int64_t i8_row_bytes(int64_t k) {
    return i8_blocks(k) * static_cast<int64_t>(sizeof(I8Block));
}
static constexpr int64_t n_row_tiles(int64_t m, int64_t tile_rows) {
    return (m + tile_rows - 1) / tile_rows;
}
static constexpr RowTile row_tile(int64_t tile, int64_t m, int64_t tile_rows) {
    const int64_t n = n_row_tiles(m, tile_rows);
    return {tile * m / n, (tile + 1) * m / n - tile * m / n};
}
static constexpr int64_t tile_of_row(int64_t row, int64_t m, int64_t tile_rows) {
    return ((row + 1) * n_row_tiles(m, tile_rows) - 1) / m;
}
// Where block `block` of a row lies, in blocks from the start of the prepared rows.
static constexpr int64_t i8_block_index(int64_t row, int64_t block, int64_t m, int64_t tile_rows, int64_t k) {
    const RowTile tile = row_tile(tile_of_row(row, m, tile_rows), m, tile_rows);
    return tile.begin * i8_blocks(k) + block * tile.n + row - tile.begin;
}

// Rows of a tile at most. More rows share the decoding of a weight, and need more registers.
inline constexpr int64_t kI8RowsScalar = 1;
inline constexpr int64_t kI8RowsAvx2 = 8;  // also of AVX-VNNI, which reads rows that AVX2 prepared
inline constexpr int64_t kI8RowsAvx512 = 16;

}  // namespace espalier::kernels
