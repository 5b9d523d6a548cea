// Packing puts 16 rows at a time into the order in which a kernel reads them (float_body.inc). f32, bf16 and nvfp4 move 32-bit
// words (1 value, 2 values, 8 codes) of a row, fp8 moves bytes, f16 is widened to f32.
#include "kernels/matmul/pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "kernels/gather/gather.h"
#include "kernels/matmul/matmul_table.h"
#include "kernels/matmul/prepared.h"
#include "kernels/quantize/formats.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kMinK = 16;

bool is_fp8(WeightLayout layout) {
    return layout == WeightLayout::fp8_tensor || layout == WeightLayout::fp8_channel || layout == WeightLayout::fp8_block;
}

bool has_row_scale(WeightLayout layout) {
    return layout == WeightLayout::nvfp4 || layout == WeightLayout::fp8_tensor || layout == WeightLayout::fp8_channel;
}

float input_scale_of(const WeightView& view) {
    return view.row_scales.empty() ? 0.0f : view.row_scales.front().input_scale;
}

bool has_one_input_scale(const WeightView& view, float scale) {
    return std::all_of(view.row_scales.begin(), view.row_scales.end(),
                       [scale](const RowScale& range) { return range.input_scale == scale; });
}

Result<int64_t> stacked_rows(std::span<const WeightView> views) {
    if (views.empty()) return invalid_input("no weight to pack");
    const WeightView& first = views[0];
    int64_t n = 0;
    for (const WeightView& view : views) {
        if (view.layout != first.layout || view.k != first.k || view.activations != first.activations) {
            return invalid_input("weights packed as one must agree: found layout " + std::string(to_string(view.layout)) +
                                 ", k " + std::to_string(view.k) + ", activations " + std::string(to_string(view.activations)) +
                                 " beside layout " + std::string(to_string(first.layout)) + ", k " + std::to_string(first.k) +
                                 ", activations " + std::string(to_string(first.activations)));
        }
        n += view.n;
    }
    if (n < 1 || first.k < kMinK || first.k % kMinK != 0) {
        return unsupported("cannot pack a weight of " + std::to_string(n) + " x " + std::to_string(first.k) +
                           ": needs at least one row and a number of columns that is a multiple of 16");
    }
    return n;
}

// The static scale of the inputs, 0 where they have none. Rows are converted once for all outputs, so it must be one.
Result<float> shared_input_scale(std::span<const WeightView> views) {
    const ActivationScheme scheme = views[0].activations;
    if (scheme != ActivationScheme::nvfp4_static && scheme != ActivationScheme::fp8_static) return 0.0f;
    const float scale = input_scale_of(views[0]);
    for (const WeightView& view : views) {
        if (!has_one_input_scale(view, scale)) {
            return invalid_input("weights packed as one must have one input scale, found several beside " +
                                 std::to_string(scale));
        }
    }
    if (!(scale > 0.0f && scale <= std::numeric_limits<float>::max())) {
        return invalid_input("a static activation scheme needs an input scale above 0, found " + std::to_string(scale));
    }
    return scale;
}

// Where a stacked row lies.
struct RowRef {
    const WeightView* view = nullptr;
    int64_t row = 0;

    // Bytes [begin, …) of the row's data. Rows are bytes_per_row apart.
    const std::byte* data(int64_t bytes_per_row) const { return view->data.data() + row * bytes_per_row; }
};

// The 16 rows of a panel; view is null for padding behind the last row.
struct PanelRows {
    RowRef rows[kPanelRows];
};

PanelRows find_rows(std::span<const WeightView> views, int64_t panel) {
    PanelRows found;
    for (int64_t output = 0; output < kPanelRows; ++output) {
        int64_t row = panel * kPanelRows + output;
        for (const WeightView& view : views) {
            if (row < view.n) {
                found.rows[output] = {&view, row};
                break;
            }
            row -= view.n;
        }
    }
    return found;
}

// out[e * 16 + output] = element e of the row; padding stays zero. In chunks whose output stays in L1 while the 16 rows pass.
template <class T>
void interleave(const PanelRows& panel, int64_t elements_per_row, T* out) {
    constexpr int64_t kChunk = 256;
    constexpr int64_t kElementBytes = sizeof(T);
    for (int64_t begin = 0; begin < elements_per_row; begin += kChunk) {
        const int64_t end = std::min(elements_per_row, begin + kChunk);
        for (int64_t output = 0; output < kPanelRows; ++output) {
            if (panel.rows[output].view == nullptr) continue;
            const std::byte* row = panel.rows[output].data(elements_per_row * kElementBytes);
            for (int64_t e = begin; e < end; ++e)
                std::memcpy(&out[e * kPanelRows + output], row + e * kElementBytes, kElementBytes);
        }
    }
}

void interleave_halves(const PanelRows& panel, int64_t k, float* out) {
    for (int64_t output = 0; output < kPanelRows; ++output) {
        if (panel.rows[output].view == nullptr) continue;
        const std::byte* row = panel.rows[output].data(2 * k);
        for (int64_t i = 0; i < k; ++i) {
            uint16_t half;
            std::memcpy(&half, row + 2 * i, 2);
            out[i * kPanelRows + output] = decode_f16(half);
        }
    }
}

// [k / 16][16 outputs]
void interleave_block_scales(const PanelRows& panel, int64_t k, uint8_t* out) {
    for (int64_t output = 0; output < kPanelRows; ++output) {
        const RowRef& ref = panel.rows[output];
        if (ref.view == nullptr) continue;
        const uint8_t* scales = ref.view->block_scales_e4m3.data() + ref.row * (k / 16);
        for (int64_t block = 0; block < k / 16; ++block) out[block * kPanelRows + output] = scales[block];
    }
}

// [k / 128][16 outputs]
void interleave_square_scales(const PanelRows& panel, int64_t k, float* out) {
    for (int64_t output = 0; output < kPanelRows; ++output) {
        const RowRef& ref = panel.rows[output];
        if (ref.view == nullptr) continue;
        const float* scales = ref.view->scales.data() + ref.row / kScaleBlockK * scale_blocks(k);
        for (int64_t block = 0; block < scale_blocks(k); ++block) out[block * kPanelRows + output] = scales[block];
    }
}

bool has_nan_code(const uint8_t* codes, int64_t n) {
    bool found = false;
    for (int64_t i = 0; i < n; ++i) found |= (codes[i] & 0x7f) == 0x7f;
    return found;
}

int64_t code_bytes_per_panel(WeightLayout layout, int64_t k) {
    switch (layout) {
        case WeightLayout::f32:
        case WeightLayout::f16: return 4 * k * kPanelRows;
        case WeightLayout::bf16: return 2 * k * kPanelRows;
        case WeightLayout::nvfp4: return k / 2 * kPanelRows;
        default: return k * kPanelRows;
    }
}

int64_t scale_bytes_per_panel(WeightLayout layout, int64_t k) {
    if (layout == WeightLayout::nvfp4) return k / 16 * kPanelRows;
    if (layout == WeightLayout::fp8_block) return 4 * scale_blocks(k) * kPanelRows;
    return 0;
}

void pack_codes(const PanelRows& rows, WeightLayout layout, int64_t k, std::byte* out) {
    switch (layout) {
        case WeightLayout::f32: return interleave(rows, k, reinterpret_cast<uint32_t*>(out));
        case WeightLayout::bf16: return interleave(rows, k / 2, reinterpret_cast<uint32_t*>(out));
        case WeightLayout::nvfp4: return interleave(rows, k / 8, reinterpret_cast<uint32_t*>(out));
        case WeightLayout::f16: return interleave_halves(rows, k, reinterpret_cast<float*>(out));
        default: return interleave(rows, k, reinterpret_cast<uint8_t*>(out));
    }
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(std::span<const WeightView> views, Acts acts, Isa isa, ThreadPool& pool) {
    TRY_ASSIGN(const int64_t n, stacked_rows(views));
    PackedMatrix packed;
    packed.layout_ = views[0].layout;
    packed.view_.n = n;
    packed.view_.k = views[0].k;
    TRY_ASSIGN(const Acts mode, effective_acts(views[0], acts));
    packed.kernel_ = find_matmul_kernel(packed.layout_, mode, isa);
    CHECK(packed.kernel_ != nullptr, "every effective mode has a scalar variant");
    if (mode == Acts::ckpt) {
        TRY_ASSIGN(packed.view_.input_scale, shared_input_scale(views));
    }
    const int64_t k = packed.view_.k;
    const WeightLayout layout = packed.layout_;
    const int64_t code_bytes = code_bytes_per_panel(layout, k);
    const int64_t scale_bytes = scale_bytes_per_panel(layout, k);
    const int64_t n_panels = packed.n_panels();
    const size_t row_scale_bytes = has_row_scale(layout) ? static_cast<size_t>(n_panels * kPanelRows) * sizeof(float) : 0;
    TRY_ASSIGN(packed.codes_, Buffer::allocate(static_cast<size_t>(n_panels * code_bytes)));
    TRY_ASSIGN(packed.scales_, Buffer::allocate(static_cast<size_t>(n_panels * scale_bytes)));
    TRY_ASSIGN(packed.row_scales_, Buffer::allocate(row_scale_bytes));
    std::atomic<bool> found_nan = false;
    pool.run(n_panels, [&](int64_t panel, int) {
        const PanelRows rows = find_rows(views, panel);
        std::byte* codes = packed.codes_.data() + panel * code_bytes;
        std::byte* scales = packed.scales_.data() + panel * scale_bytes;
        pack_codes(rows, layout, k, codes);
        if (layout == WeightLayout::nvfp4) interleave_block_scales(rows, k, reinterpret_cast<uint8_t*>(scales));
        if (layout == WeightLayout::fp8_block) interleave_square_scales(rows, k, reinterpret_cast<float*>(scales));
        if (is_fp8(layout) && has_nan_code(reinterpret_cast<const uint8_t*>(codes), code_bytes)) found_nan = true;
        for (int64_t output = 0; has_row_scale(layout) && output < kPanelRows; ++output) {
            const RowRef& ref = rows.rows[output];
            if (ref.view != nullptr) packed.row_scales_.as<float>()[panel * kPanelRows + output] = row_scale(*ref.view, ref.row);
        }
    });
    // Kernels read the NaN code as a number.
    if (found_nan)
        return corrupt_data("an FP8 weight of " + std::to_string(n) + " x " + std::to_string(k) +
                            " holds NaN codes (0x7f or 0xff)");
    packed.view_.codes = packed.codes_.data();
    packed.view_.scales = scale_bytes > 0 ? packed.scales_.data() : nullptr;
    packed.view_.row_scale = row_scale_bytes > 0 ? packed.row_scales_.as<float>() : nullptr;
    return packed;
}

void PackedMatrix::unpack_row(int64_t row, float* out) const {
    CHECK(row >= 0 && row < view_.n, "unpack_row: row outside the weight");
    const int64_t panel = row / kPanelRows;
    const int64_t output = row % kPanelRows;
    const std::byte* codes = codes_.data() + panel * code_bytes_per_panel(layout_, view_.k);
    const std::byte* scales = scales_.data() + panel * scale_bytes_per_panel(layout_, view_.k);
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
    const float whole_row = view_.row_scale == nullptr ? 1.0f : view_.row_scale[row];
    for (int64_t i = 0; i < view_.k; ++i) {
        switch (layout_) {
            case WeightLayout::f32:
            case WeightLayout::f16: out[i] = reinterpret_cast<const float*>(codes)[i * kPanelRows + output]; break;
            case WeightLayout::bf16:
                out[i] = decode_bf16(reinterpret_cast<const uint16_t*>(codes)[(i / 2 * kPanelRows + output) * 2 + i % 2]);
                break;
            case WeightLayout::nvfp4: {
                const uint8_t byte = bytes[(i / 8 * kPanelRows + output) * 4 + i % 8 / 2];
                const uint8_t scale = reinterpret_cast<const uint8_t*>(scales)[i / 16 * kPanelRows + output];
                out[i] = decode_e2m1(i % 2 == 0 ? byte & 15 : byte >> 4) * decode_e4m3(scale) * whole_row;
                break;
            }
            case WeightLayout::fp8_tensor:
            case WeightLayout::fp8_channel: out[i] = decode_e4m3(bytes[i * kPanelRows + output]) * whole_row; break;
            case WeightLayout::fp8_block: {
                const float scale = reinterpret_cast<const float*>(scales)[i / kScaleBlockK * kPanelRows + output];
                out[i] = decode_e4m3(bytes[i * kPanelRows + output]) * scale;
                break;
            }
        }
    }
}

}  // namespace espalier::kernels
