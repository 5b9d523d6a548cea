// The values of ggml's quantised blocks. The formulas are those of ggml's reference dequantisers; tests compare with the PyPI
// package gguf.
#pragma once

#include <cstddef>
#include <span>

#include "checkpoint/gguf.h"

namespace espalier::checkpoint {

// Whether expand_gguf_blocks knows the type: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
// IQ4_NL, IQ4_XS, MXFP4.
bool can_expand(const GgufTensorType& type);

// Writes the values of whole blocks (out.size() is a multiple of block_values, data holds as many blocks). Each value is the
// product and sum in float that the format defines.
void expand_gguf_blocks(const GgufTensorType& type, std::span<const std::byte> data, std::span<float> out);

// One row of NVFP4 in this program's order: codes with the even value in the low half of a byte (k / 2 bytes), an E4M3 scale per
// 16 values (k / 16 bytes). The file has blocks of 64 values: four scales, then per 16 values eight bytes that hold values j and
// j + 8.
void split_nvfp4_row(std::span<const std::byte> row, std::span<std::byte> codes, std::span<std::byte> scales);

}  // namespace espalier::checkpoint
