// Element types and quantised block layouts: what the bytes of a weight mean. No arithmetic lives here.
//
// E4M3 and E2M1 are the OCP formats (bias 7 without infinities, NaN = 0x7f; bias 1, values 0 .5 1 1.5 2 3 4 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace espalier {

enum class Dtype : uint8_t { f32, bf16, f16, f8_e4m3, u8, i8, i32, i64 };

// Bytes of one element.
size_t dtype_bytes(Dtype dtype);
// "F32", "BF16", … as safetensors spells them.
std::string_view to_string(Dtype dtype);

// How a 2-D weight [n, k] is stored. Row-major in k unless stated.
enum class WeightLayout : uint8_t {
    f32,          // float [n, k]
    bf16,         // uint16 [n, k], the upper half of a float
    f16,          // IEEE half [n, k]
    nvfp4,        // codes u8 [n, k/2], low nibble = even k; E4M3 scales [n, k/16]; one float per row range (row_scales)
    fp8_tensor,   // E4M3 [n, k]; one float per row range (row_scales)
    fp8_channel,  // E4M3 [n, k]; one float per row (channel_scales)
    fp8_block,    // E4M3 [n, k]; float [ceil(n/128), ceil(k/128)] (block_scales)
};

std::string_view to_string(WeightLayout layout);

// How the checkpoint says that a module's input is quantised.
enum class ActivationScheme : uint8_t {
    none,               // weights only
    nvfp4_static,       // 16-blocks, E4M3 block scales, second-level scale fixed by calibration (input_scale)
    fp8_static,         // one scale fixed by calibration (input_scale)
    fp8_dynamic_token,  // one scale per row, amax/448
    fp8_dynamic_block,  // one scale per row and 128 columns, amax/448
};

std::string_view to_string(ActivationScheme scheme);

// Rows [row_begin, row_end) share one second-level scale; projections fused along n keep their own scales exactly.
struct RowScale {
    int64_t row_begin = 0;
    int64_t row_end = 0;
    float weight_scale = 1.0f;  // multiplier
    float input_scale = 0.0f;   // activation scale, 0 = none given
};

// A weight in logical order as the checkpoint holds it. Views borrow from the mapped file (or from an owner the reader
// keeps alive); small scale tables are owned because files spell them in several types.
struct WeightView {
    WeightLayout layout = WeightLayout::f32;
    int64_t n = 0;                               // outputs (rows)
    int64_t k = 0;                               // inputs
    std::span<const std::byte> data;             // codes or values, see WeightLayout
    std::span<const uint8_t> block_scales_e4m3;  // nvfp4: [n, k/16] row-major
    std::vector<float> scales;                   // fp8_channel: [n]; fp8_block: [ceil(n/128), ceil(k/128)]
    std::vector<RowScale> row_scales;            // nvfp4, fp8_tensor: ascending, cover [0, n)
    ActivationScheme activations = ActivationScheme::none;
};

}  // namespace espalier
