// How numbers become codes. NVFP4 weights follow ModelOpt 0.47 (checked bit for bit by the tests):
//   s2 = amax / (6 * 448) over the modules that share it; block scale = e4m3(clamp(amax of 16 / (6 * s2), 2^-9, 448)), 1 for a
//   block of zeros; code = e2m1(x / (block scale * s2)), ties to the even code, saturating at 6. All steps rounded to float.
// FP8 per tensor is ModelOpt's, where the quotient of a BF16 weight is rounded to BF16 before it becomes a code; per 128x128
// block the rule of Qwen's FP8 releases with BF16 scales and no such step.
#pragma once

#include <cstdint>

namespace espalier::quant {

// The second-level scale for a largest absolute value; of activations too. Above 0 even when everything is 0.
float nvfp4_second_scale(float amax);
// The scale of an FP8 tensor, of keys and values. Likewise above 0.
float fp8_scale(float amax);
// The scale of an FP8 block, rounded to BF16: its bits.
uint16_t fp8_block_scale(float amax);

// One row; k is a multiple of 16. scales: [k / 16] E4M3, codes: [k / 2], low nibble = even k; either may be null.
void quantize_nvfp4_row(const float* row, int64_t k, float second_scale, uint8_t* scales, uint8_t* codes);
// codes: [k] E4M3 of row / scale, saturating.
enum class Quotient : uint8_t { exact, rounded_to_bf16 };
void quantize_fp8_row(const float* row, int64_t k, float scale, Quotient quotient, uint8_t* codes);

// The largest absolute value of n numbers; infinite if any of them is NaN or infinite.
float largest_magnitude(const float* x, int64_t n);

}  // namespace espalier::quant
