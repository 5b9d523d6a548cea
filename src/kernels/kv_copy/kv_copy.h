// Rounding to the KV type and placing keys and values in block layout (attention.h). Round to nearest, ties to even; FP8 is
// E4M3 saturating at 448 after multiplication by inv_scale. Flags: row_independent, same_bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace espalier::kernels {

struct KvStoreArgs {
    KvType kv = KvType::f32;
    const float* x = nullptr;  // [n]
    float inv_scale = 1;       // fp8 only
    void* y = nullptr;         // [n] of type kv, contiguous
    int64_t n = 0;
};
using KvStoreFn = void (*)(const KvStoreArgs&) noexcept;

// Copies one key row (contiguous, type kv) into lane `lane` of a K block [head_dim][kKeyBlock].
struct KPlaceArgs {
    KvType kv = KvType::f32;
    const void* row = nullptr;  // [head_dim]
    void* block = nullptr;
    int64_t lane = 0;
    int64_t head_dim = 0;
};
using KPlaceFn = void (*)(const KPlaceArgs&) noexcept;

}  // namespace espalier::kernels
