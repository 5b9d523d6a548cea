// scores.json: the inline score of a whole run, with the names and nesting of the official harness.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/dataset.h"

namespace espalier::bench {

// A recorded reply that a run is compared with.
struct ExpectedTurn {
    std::string conversation;
    int64_t client_turn = 0;
    int64_t assistant_turn = 0;
    Json tool_calls;  // complete calls
};

// What a run did with one request. A request that failed has no reply.
struct ObservedTurn {
    std::string conversation;  // may end in "__repeat_<n>"
    int64_t client_turn = 0;
    std::optional<Json> tool_calls;  // complete calls or fragment lists; nullopt = no output was recorded
};

// The expected turns of a conversation: each request row that a recorded reply follows.
void append_expected(const Conversation& conversation, std::vector<ExpectedTurn>& out);

// The contents of scores.json. Requests that are not expected turns are ignored.
Json score_run(std::span<const ExpectedTurn> expected, std::span<const ObservedTurn> observed);

}  // namespace espalier::bench
