// Causal attention of some query rows over one KV head, in key blocks of kKeyBlock absolute positions (online softmax,
// Milakov & Gimelshein 2018). A row's result depends only on its own query and the keys it sees: the block grid is fixed by
// absolute position, hidden lanes contribute exact zeros.
//
// For a row with n_keys visible keys, for blocks b = block_begin .. block_end-1 with b * kKeyBlock < n_keys, in order:
//   s[j]  = sum_d q[d] K[d][j]                    fused in ascending d from 0; j = lane
//   m'    = max(m, max over visible j of s[j])    visible: b * kKeyBlock + j < n_keys
//   p[j]  = exp(s[j] - m') visible, 0 hidden
//   l     = l * exp(m - m') + sum_j p[j]          16 partial sums by j mod 16 (ascending j), reduced pairwise
//   acc[d] = acc[d] * exp(m - m') + sum_j p[j] V[j][d]     rescaled once per block, then fused in ascending j
// starting from m = -inf, l = 0, acc = 0. exp is exp_poly (kernels/act/act.h); exp(0) is exactly 1.
// The softmax scale and the K scale are folded into q by the caller, the V scale into the output.
//
// attention_merge joins the partitions of a row in ascending order:
//   m = max m_p; out[d] = (sum_p acc_p[d] exp(m_p - m)) / (sum_p l_p exp(m_p - m)) * v_scale
// Partitions that the row does not see (partition * kPartitionBlocks * kKeyBlock >= n_keys) are skipped.
// Block memory: K is [head_dim][kKeyBlock] (lane = key), V is [kKeyBlock][head_dim]; both of type kv. Hidden lanes must
// hold finite values. head_dim is a multiple of 16, at most 256. Any n_rows.
// Flags: row_independent, same_bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::kernels {

inline constexpr int64_t kKeyBlock = 64;        // keys per block = tokens per KV page
inline constexpr int64_t kPartitionBlocks = 8;  // fixed grid of the split over keys: 512 keys

enum class KvType : uint8_t { f32, bf16, fp8 };

struct AttentionArgs {
    const float* q = nullptr;  // [n_rows, head_dim], row stride q_stride; scaled
    int64_t q_stride = 0;
    const int32_t* n_keys = nullptr;  // [n_rows], >= 1
    int64_t n_rows = 0;
    int64_t head_dim = 0;
    KvType kv = KvType::f32;
    const void* const* k_blocks = nullptr;  // [block_end - block_begin]
    const void* const* v_blocks = nullptr;
    int64_t block_begin = 0;  // absolute block numbers of the partition
    int64_t block_end = 0;
    float* m = nullptr;    // [n_rows]
    float* l = nullptr;    // [n_rows]
    float* acc = nullptr;  // [n_rows, head_dim], contiguous
};

using AttentionFn = void (*)(const AttentionArgs&) noexcept;

struct AttentionMergeArgs {
    const float* m = nullptr;  // partition p at m + p * m_stride
    const float* l = nullptr;  // same stride
    int64_t m_stride = 0;
    const float* acc = nullptr;  // partition p at acc + p * acc_stride, [head_dim]
    int64_t acc_stride = 0;
    int64_t n_partitions = 0;  // those the row sees
    int64_t head_dim = 0;
    float v_scale = 1;
    float* out = nullptr;  // [head_dim]
};

using AttentionMergeFn = void (*)(const AttentionMergeArgs&) noexcept;

}  // namespace espalier::kernels
