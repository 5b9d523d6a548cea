// How much memory an engine reserves beside the weights: KV pages and state slots, from a byte budget and the context wanted.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cache/sequence.h"

namespace espalier::engine {

// Snapshots given up in memory that the writer of the disk store may still hold.
inline constexpr int32_t kWritesPendingMax = 4;

struct MemoryRequest {
    cache::StateShape shape;
    int32_t context_trained = 0;
    int32_t context_tokens = 0;  // 0 = choose
    int32_t sequences_max = 1;
    int64_t cache_bytes = 0;      // everything; 0 = a quarter of available
    int64_t available_bytes = 0;  // after the weights; 0 = unknown
};

// Pages and snapshots share conversation_bytes as they come: each pool has slots enough to take nearly all of it, and the
// conversation cache sees to the sum.
struct MemoryPlan {
    int32_t context_tokens = 0;
    int32_t n_pages = 0;
    int32_t n_states = 0;
    int32_t snapshots_max = 0;
    int64_t conversation_bytes = 0;  // pages in use, states of snapshots, index
    int64_t bytes = 0;               // with the states of running sequences
};

// A pure function. Errors: invalid_input for a context beyond the trained limit, exhausted with needs against what is there and
// the largest context that would fit.
Result<MemoryPlan> plan_memory(const MemoryRequest& request);

}  // namespace espalier::engine
