// Scratch memory of the forward pass, allocated once; a step allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "model/pass.h"
#include "tensor/buffer.h"

namespace espalier::model {

// All float arrays are row-major with one row per pass row unless stated.
// Contents are valid within one layer, except `x` (residual stream), `hidden`,
// and the per-layer records that commit reads.
class Workspace {
public:
    static Result<Workspace> create(const Model& model, const PassLimits& limits, int32_t n_threads);

    float* x = nullptr;          // [rows, hidden] residual stream
    float* normed = nullptr;     // [rows, hidden]
    float* hidden = nullptr;     // [rows, hidden] after the final norm
    float* projected = nullptr;  // [rows, projected_width] outputs of the first
                                 // projection of a mixer or MLP
    float* mixed = nullptr;      // [rows, mixed_width] what enters the second projection
    float* conv = nullptr;       // [rows, conv_channels]
    float* decay = nullptr;      // [rows, n_value_heads]
    float* beta = nullptr;       // [rows, n_value_heads]
    float* cos = nullptr;        // [rows, rotary_dim / 2]
    float* sin = nullptr;
    float* queries = nullptr;   // [kv head][order index][group of heads][head_dim]
    float* concat = nullptr;    // [rows, 2 * hidden] MTP input
    int32_t* n_keys = nullptr;  // [order index][group of heads]

    std::byte* tail_blocks = nullptr;  // gathered key blocks, see attention_layer.cpp
    // Converted rows. Two, because the second matrix of a pair gets its inputs
    // while the first is still being multiplied.
    std::byte* matmul_scratch = nullptr;  // of mixers' and the MLP's first matrix, the head and mtp.fc
    std::byte* inner_scratch = nullptr;   // of the second
    int64_t projected_width = 0;
    int64_t mixed_width = 0;

    // Keys and values of the pass' rows in KV type, kept for every layer until
    // commit: [rows][kv_width].
    std::byte* k_rows(int32_t kv_layer) { return kv_rows_ + static_cast<size_t>(kv_layer) * 2 * kv_rows_bytes_; }
    std::byte* v_rows(int32_t kv_layer) { return k_rows(kv_layer) + kv_rows_bytes_; }

    // Draft nodes of recurrent layers, kept for replay at commit; index =
    // tree_row.
    float* journal_raw(int32_t layer) { return journal(layer); }  // [tree, conv_channels] before conv
    float* journal_conv(int32_t layer) { return journal(layer) + journal_rows_ * channels_; }       // [tree, conv_channels] after
    float* journal_decay(int32_t layer) { return journal(layer) + 2 * journal_rows_ * channels_; }  // [tree, n_value_heads]
    float* journal_beta(int32_t layer) { return journal_decay(layer) + journal_rows_ * heads_; }

    // Per worker.
    float* delta_scratch(int32_t worker) { return delta_scratch_ + static_cast<size_t>(worker) * delta_scratch_floats_; }
    // A key head's rows on their way through a recurrent layer: [head_rows_max]
    // queries, keys and values; gates; outputs.
    float* head_scratch(int32_t worker) { return head_scratch_ + static_cast<size_t>(worker) * head_scratch_floats_; }
    static int64_t head_rows_max(const PassLimits& limits);
    float* attention_scratch(int32_t worker) {
        return attention_scratch_ + static_cast<size_t>(worker) * attention_scratch_floats_;
    }

    size_t bytes() const { return memory_.bytes(); }

private:
    float* journal(int32_t layer) { return journal_ + static_cast<size_t>(layer) * journal_floats_; }

    Buffer memory_;
    std::byte* kv_rows_ = nullptr;
    size_t kv_rows_bytes_ = 0;
    float* journal_ = nullptr;
    size_t journal_floats_ = 0;
    size_t journal_rows_ = 0;
    size_t channels_ = 0;
    size_t heads_ = 0;
    float* delta_scratch_ = nullptr;
    size_t delta_scratch_floats_ = 0;
    float* head_scratch_ = nullptr;
    size_t head_scratch_floats_ = 0;
    float* attention_scratch_ = nullptr;
    size_t attention_scratch_floats_ = 0;
};

// Spine rows that a key head takes through a recurrent layer at a time: with 2
// KiB each they stay in L2.
inline constexpr int32_t kHeadRows = 64;

// Query rows that one attention task handles; bounds a worker's scratch.
inline constexpr int32_t kAttentionTaskRows = 32;

// Gathered key blocks of a pass at most: complete ones of the spines, and two
// for every group.
int64_t tail_blocks_max(const PassLimits& limits);

}  // namespace espalier::model
