#include "kernels/matmul/matmul_ref.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/matmul/matmul_table.h"
#include "kernels/quantize/formats.h"

namespace espalier::kernels {
namespace {

float amax_of(std::span<const float> x) {
    float amax = 0;
    for (const float v : x) amax = std::max(amax, std::fabs(v));
    return amax;
}

double round_to_bf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

void a8_ref(std::span<const float> x, double* out) {
    const float amax = amax_of(x);
    for (size_t i = 0; i < x.size(); ++i) out[i] = amax == 0 ? 0.0 : std::nearbyint(x[i] * (127.0f / amax)) * (amax / 127.0f);
}

void nvfp4_ref(std::span<const float> x, float input_scale, double* out) {
    const Nvfp4Group group = quantise_nvfp4_ref(x, input_scale);
    for (size_t i = 0; i < x.size(); ++i)
        out[i] = static_cast<double>(decode_e2m1(group.codes[i])) * (decode_e4m3(group.scale) * input_scale);
}

void fp8_ref(std::span<const float> x, float scale, double* out) {
    for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<double>(decode_e4m3(encode_e4m3(x[i] / scale))) * scale;
}

float dynamic_fp8_scale(std::span<const float> x) {
    return std::max(amax_of(x), 1e-12f) / 448.0f;
}

// Inputs of one row for ckpt.
void declared_ref(std::span<const float> row, const WeightView& weight, double* out) {
    const float input_scale = weight.row_scales.empty() ? 0.0f : weight.row_scales[0].input_scale;
    switch (weight.activations) {
        case ActivationScheme::none: std::copy(row.begin(), row.end(), out); return;
        case ActivationScheme::nvfp4_static:
            for (size_t i = 0; i < row.size(); i += 16) nvfp4_ref(row.subspan(i, 16), input_scale, out + i);
            return;
        case ActivationScheme::fp8_static: return fp8_ref(row, input_scale, out);
        case ActivationScheme::fp8_dynamic_token: return fp8_ref(row, dynamic_fp8_scale(row), out);
        case ActivationScheme::fp8_dynamic_block:
            for (size_t i = 0; i < row.size(); i += 128) {
                const std::span<const float> block = row.subspan(i, std::min<size_t>(128, row.size() - i));
                fp8_ref(block, dynamic_fp8_scale(block), out + i);
            }
            return;
    }
}

}  // namespace

std::vector<double> matmul_ref(std::span<const double> x, std::span<const float> w, int64_t m, int64_t n, int64_t k) {
    std::vector<double> y;
    for (int64_t row = 0; row < m; ++row) {
        for (int64_t output = 0; output < n; ++output) {
            double sum = 0;
            for (int64_t i = 0; i < k; ++i) sum += x[static_cast<size_t>(row * k + i)] * w[static_cast<size_t>(output * k + i)];
            y.push_back(sum);
        }
    }
    return y;
}

std::vector<double> inputs_ref(std::span<const float> x, int64_t m, const WeightView& weight, Acts acts) {
    const size_t k = static_cast<size_t>(weight.k);
    std::vector<double> out(x.begin(), x.end());
    const Acts mode = *effective_acts(weight, acts);
    for (size_t row = 0; row < static_cast<size_t>(m); ++row) {
        const std::span<const float> values = x.subspan(row * k, k);
        double* row_out = out.data() + row * k;
        if (mode == Acts::a16) std::transform(values.begin(), values.end(), row_out, round_to_bf16);
        for (size_t i = 0; mode == Acts::a8 && i < k; i += 64)
            a8_ref(values.subspan(i, std::min<size_t>(64, k - i)), row_out + i);
        if (mode == Acts::ckpt) declared_ref(values, weight, row_out);
    }
    return out;
}

Nvfp4Group quantise_nvfp4_ref(std::span<const float> x, float input_scale) {
    Nvfp4Group group;
    const float inverse = 1.0f / input_scale;
    const float amax = amax_of(x);
    group.scale = encode_e4m3(inverse * (amax / 6.0f));
    const float scale = decode_e4m3(group.scale);
    const float factor = amax > 0 && scale > 0 ? inverse / scale : 0.0f;
    for (size_t i = 0; i < x.size(); ++i) group.codes[i] = encode_e2m1(x[i] * factor);
    return group;
}

}  // namespace espalier::kernels
