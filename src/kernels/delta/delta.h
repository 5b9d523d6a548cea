// The gated delta rule (Yang et al. 2024, Gated DeltaNet), token recurrence
// over a chain followed by a token tree. Per value head, state S [dk][dv]
// float, for a node with parent state S:
//   T[i][j] = decay * S[i][j]
//   u[j]    = beta * ( v[j] - sum_i T[i][j] k[i] )
//   S'[i][j] = T[i][j] + k[i] u[j]
//   o[j]    = sum_i S'[i][j] q[i]
// Sums over i: four partial sums by i mod 4, each fused in ascending i, then
// (p0 + p1) + (p2 + p3). S' = fma(k[i], u[j], T). Columns j are independent, so
// callers split value heads and column ranges freely. dk is a multiple of 4.
//
// Nodes 0 .. spine-1 form a chain from state_in; the state after node spine-1
// is written to state_out. Nodes spine .. n-1 are a tree in topological order:
// parents[i] - first_node is spine-1 (the state after the spine; state_in if
// spine == 0) or an earlier tree node. Tree states live in `scratch` only: slot
// (i - spine) of dk * kDeltaColumns floats. Where continues[i] says that node i
// + 1, and no other, starts from node i, the state of i is never kept.
//
// delta_gates, per row and value head h:
//   decay[h] = exp( neg_exp_a_log[h] * softplus(a[h] + dt_bias[h]) )
//   softplus(x) = x > 20 ? x : log1p(exp(x)) beta[h]  = 1 / (1 + exp(-b[h]))
// Flags: row_independent, same_bits.
#pragma once

#include <cstdint>

namespace espalier::kernels {

// A call handles at most this many columns, so that one column block's state
// (16 KiB at dk = 128) stays in L1.
inline constexpr int64_t kDeltaColumns = 32;

// Whether state_out is wanted again soon. Streamed past the caches it costs
// half the memory traffic.
enum class StateStore : uint8_t { cached, streamed };

struct DeltaArgs {
    const float* q = nullptr;  // [n_nodes, dk], row stride qk_stride; l2-normed and scaled
    const float* k = nullptr;  // [n_nodes, dk], row stride qk_stride; l2-normed
    int64_t qk_stride = 0;
    const float* v = nullptr;  // [n_nodes, n_columns], row stride v_stride; first
                               // of the column range
    int64_t v_stride = 0;
    const float* decay = nullptr;  // [n_nodes], stride gate_stride
    const float* beta = nullptr;   // [n_nodes], stride gate_stride
    int64_t gate_stride = 0;
    const int32_t* parents = nullptr;    // [n_nodes]; entries below spine are not read
    int64_t first_node = 0;              // what parents call node 0
    const uint8_t* continues = nullptr;  // [n_nodes]; null: never
    int64_t n_nodes = 0;
    int64_t spine = 0;
    int64_t dk = 0;
    int64_t n_columns = 0;            // 1 .. kDeltaColumns
    const float* state_in = nullptr;  // [dk] rows of n_columns, row stride state_stride
    float* state_out = nullptr;       // same shape; may equal state_in; may be null when spine == 0
    int64_t state_stride = 0;
    const float* state_next = nullptr;  // asked for while this call runs: what the next one will read,
                                        // same shape; may be null
    StateStore store = StateStore::cached;
    float* out = nullptr;  // [n_nodes, n_columns], row stride out_stride; null =
                           // states only (commit)
    int64_t out_stride = 0;
    float* scratch = nullptr;  // (1 + n_nodes - spine) * dk * kDeltaColumns
                               // floats, 64-byte aligned
};

using DeltaFn = void (*)(const DeltaArgs&) noexcept;

struct DeltaGatesArgs {
    const float* a = nullptr;  // [n_rows, n_heads], row stride in_stride
    const float* b = nullptr;  // [n_rows, n_heads], row stride in_stride
    int64_t in_stride = 0;
    const float* neg_exp_a_log = nullptr;  // [n_heads], -exp(A_log)
    const float* dt_bias = nullptr;        // [n_heads]
    float* decay = nullptr;                // [n_rows, n_heads], row stride out_stride
    float* beta = nullptr;                 // [n_rows, n_heads], row stride out_stride
    int64_t out_stride = 0;
    int64_t n_rows = 0;
    int64_t n_heads = 0;
};

using DeltaGatesFn = void (*)(const DeltaGatesArgs&) noexcept;

}  // namespace espalier::kernels
