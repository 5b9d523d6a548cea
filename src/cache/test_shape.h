// A state shape small enough for tests: one KV layer of the trunk and one of the MTP head, one recurrent layer.
#pragma once

#include "cache/shape.h"

namespace espalier::cache {

// Heads and dimensions of the recurrent layer decide what a snapshot costs beside a page.
inline StateShape small_shape(int32_t n_value_heads = 2, int32_t state_dim = 4) {
    StateShape shape;
    shape.n_kv_layers = 2;
    shape.n_kv_heads = 1;
    shape.head_dim = 16;
    shape.kv = kernels::KvType::f32;
    shape.n_recurrent_layers = 1;
    shape.n_value_heads = n_value_heads;
    shape.key_dim = state_dim;
    shape.value_dim = state_dim;
    shape.conv_channels = 8;
    shape.hidden = 8;
    return shape;
}

}  // namespace espalier::cache
