#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "cache/conversation_cache.h"

namespace espalier::engine {
namespace {

constexpr int32_t kContextFloor = 32768;  // what agents need at least
constexpr int32_t kSequencesMax = 64;
constexpr int64_t kSnapshotsMax = 4096;
constexpr int64_t kMiB = int64_t{1} << 20;

int64_t pages_for(int64_t tokens) {
    return (tokens + cache::kPageTokens - 1) / cache::kPageTokens;
}

}  // namespace

Result<MemoryPlan> plan_memory(const MemoryRequest& request) {
    if (request.context_tokens > request.context_trained) {
        return invalid_input(fmt::format("--ctx is {}, the model was trained for {} tokens; choose at most that",
                                         request.context_tokens, request.context_trained));
    }
    if (request.sequences_max < 1 || request.sequences_max > kSequencesMax) {
        return invalid_input(fmt::format("--parallel is {}, expected 1 to {}", request.sequences_max, kSequencesMax));
    }
    const auto page_bytes = static_cast<int64_t>(request.shape.page_bytes());
    const auto state_bytes = static_cast<int64_t>(request.shape.state_bytes());
    const int64_t budget = request.cache_bytes > 0       ? request.cache_bytes
                           : request.available_bytes > 0 ? request.available_bytes / 4
                                                         : int64_t{1} << 30;
    MemoryPlan plan;
    // A running sequence holds its state, the pass' working state, and the target of a replay.
    const int64_t running_states = 3 * int64_t{request.sequences_max};
    const int64_t shared = budget - running_states * state_bytes;
    plan.context_tokens = request.context_tokens;
    if (plan.context_tokens == 0) {
        // One conversation may fill half of the cache.
        const int64_t fits = shared / 2 / page_bytes * cache::kPageTokens;
        plan.context_tokens =
            static_cast<int32_t>(std::min<int64_t>(request.context_trained, std::max<int64_t>(kContextFloor, fits)));
    }
    // One full context always fits, with room for copied pages of every running sequence, and two snapshots.
    const int64_t pages_least = pages_for(plan.context_tokens) + 4 * request.sequences_max;
    const int64_t least = pages_least * page_bytes + 2 * state_bytes;
    plan.conversation_bytes = std::max(shared, least + cache::index_bytes_max(2 * least));
    plan.n_pages = static_cast<int32_t>(std::min<int64_t>(plan.conversation_bytes / page_bytes, 1 << 24));
    plan.snapshots_max = static_cast<int32_t>(std::clamp<int64_t>(plan.conversation_bytes / state_bytes, 2, kSnapshotsMax));
    plan.n_states = static_cast<int32_t>(running_states) + plan.snapshots_max + kWritesPendingMax;
    plan.bytes = plan.conversation_bytes + running_states * state_bytes;
    if (request.available_bytes > 0 && plan.bytes > request.available_bytes) {
        const int64_t fixed = running_states * state_bytes + 2 * state_bytes;
        const int64_t left = request.available_bytes - fixed - cache::index_bytes_max(request.available_bytes);
        const int64_t context = std::max<int64_t>(0, (left / page_bytes - 4 * request.sequences_max) * cache::kPageTokens);
        return exhausted(
            fmt::format("a context of {} tokens needs {} MiB for keys and values and {} MiB for {} states, {} MiB are free; "
                        "the largest context that fits is {} tokens (--ctx){}",
                        plan.context_tokens, pages_least * page_bytes / kMiB, fixed / kMiB, running_states + 2,
                        request.available_bytes / kMiB, context,
                        request.cache_bytes > request.available_bytes ? ", and --cache-ram asks for more than that" : ""));
    }
    return plan;
}

}  // namespace espalier::engine
