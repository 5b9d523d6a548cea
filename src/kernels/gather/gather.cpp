#include "kernels/gather/gather.h"

#include <cstring>

#include "base/check.h"
#include "kernels/quantize/formats.h"

namespace espalier::kernels {
namespace {

const uint8_t* row_bytes(const WeightView& weight, int64_t row, int64_t bytes_per_row) {
    return reinterpret_cast<const uint8_t*>(weight.data.data()) + row * bytes_per_row;
}

// Files do not promise alignment, so 16-bit and 32-bit values are copied out.
template <class T>
T load_element(const uint8_t* bytes, int64_t index) {
    T value;
    std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

void gather_nvfp4(const WeightView& weight, int64_t row, float* out) {
    const uint8_t* codes = row_bytes(weight, row, weight.k / 2);
    const uint8_t* scales = weight.block_scales_e4m3.data() + row * (weight.k / 16);
    const float weight_scale = row_scale(weight, row);
    for (int64_t k = 0; k < weight.k; ++k) {
        const uint8_t code = k % 2 == 0 ? codes[k / 2] & 15 : codes[k / 2] >> 4;
        // The first product has 6 significant bits and is exact.
        out[k] = decode_e2m1(code) * decode_e4m3(scales[k / 16]) * weight_scale;
    }
}

float fp8_scale(const WeightView& weight, int64_t row, int64_t k) {
    if (weight.layout != WeightLayout::fp8_block) return row_scale(weight, row);
    return weight.scales[static_cast<size_t>(row / 128 * ((weight.k + 127) / 128) + k / 128)];
}

}  // namespace

float row_scale(const WeightView& weight, int64_t row) {
    switch (weight.layout) {
        case WeightLayout::fp8_channel: return weight.scales[static_cast<size_t>(row)];
        case WeightLayout::nvfp4:
        case WeightLayout::fp8_tensor:
            for (const RowScale& range : weight.row_scales) {
                if (row < range.row_end) return range.weight_scale;
            }
            CHECK(false, "row_scales do not cover the weight's rows");
        default: return 1.0f;
    }
}

void gather_row(const WeightView& weight, int64_t row, float* out) {
    CHECK(row >= 0 && row < weight.n, "gather_row: row outside the weight");
    const int64_t n = weight.k;
    switch (weight.layout) {
        case WeightLayout::f32: std::memcpy(out, row_bytes(weight, row, 4 * n), static_cast<size_t>(4 * n)); return;
        case WeightLayout::bf16:
            for (int64_t k = 0; k < n; ++k) out[k] = decode_bf16(load_element<uint16_t>(row_bytes(weight, row, 2 * n), k));
            return;
        case WeightLayout::f16:
            for (int64_t k = 0; k < n; ++k) out[k] = decode_f16(load_element<uint16_t>(row_bytes(weight, row, 2 * n), k));
            return;
        case WeightLayout::nvfp4: return gather_nvfp4(weight, row, out);
        case WeightLayout::fp8_tensor:
        case WeightLayout::fp8_channel:
        case WeightLayout::fp8_block: {
            const uint8_t* codes = row_bytes(weight, row, n);
            for (int64_t k = 0; k < n; ++k) out[k] = decode_e4m3(codes[k]) * fp8_scale(weight, row, k);
            return;
        }
    }
}

}  // namespace espalier::kernels
