// The sizes of what one sequence remembers, fixed by the model and the KV type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace espalier::cache {

using TokenId = int32_t;

// Tokens per KV page = keys per attention block, so that a full page is read in place.
inline constexpr int32_t kPageTokens = static_cast<int32_t>(kernels::kKeyBlock);

// Pre-convolution inputs that a recurrent layer keeps: width 4 needs the last 3.
inline constexpr int32_t kConvColumns = 3;

struct StateShape {
    // Attention layers of the trunk, plus one for the MTP head if there is one (the last index).
    int32_t n_kv_layers = 0;
    bool has_mtp_layer = false;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;
    kernels::KvType kv = kernels::KvType::bf16;

    int32_t n_recurrent_layers = 0;
    int32_t n_value_heads = 0;
    int32_t key_dim = 0;    // rows of a head's state
    int32_t value_dim = 0;  // columns
    int32_t conv_channels = 0;

    int32_t hidden = 0;

    size_t kv_element_bytes() const { return kv == kernels::KvType::f32 ? 4 : kv == kernels::KvType::bf16 ? 2 : 1; }
    // One K or V block of one layer and head: [head_dim][64] or [64][head_dim].
    size_t block_bytes() const { return static_cast<size_t>(head_dim) * kPageTokens * kv_element_bytes(); }
    // A page holds K and V blocks of every attention layer and head for 64 tokens.
    size_t page_bytes() const { return layer_page_bytes() * static_cast<size_t>(n_kv_layers); }
    size_t layer_page_bytes() const { return block_bytes() * 2 * static_cast<size_t>(n_kv_heads); }
    // The first bytes of a page: all layers but the MTP head's.
    size_t trunk_page_bytes() const { return layer_page_bytes() * static_cast<size_t>(n_kv_layers - (has_mtp_layer ? 1 : 0)); }

    size_t recurrent_floats_per_layer() const {
        return static_cast<size_t>(n_value_heads) * static_cast<size_t>(key_dim) * static_cast<size_t>(value_dim);
    }
    size_t conv_floats_per_layer() const { return static_cast<size_t>(conv_channels) * kConvColumns; }
    // A state slot: recurrent states, conv columns, last normed hidden row; float.
    size_t state_floats() const {
        return static_cast<size_t>(n_recurrent_layers) * (recurrent_floats_per_layer() + conv_floats_per_layer()) +
               static_cast<size_t>(hidden);
    }
    size_t state_bytes() const { return state_floats() * sizeof(float); }
};

}  // namespace espalier::cache
