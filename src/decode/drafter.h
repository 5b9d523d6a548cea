// Who proposes tokens ahead of the model, as the step loop sees it. What is proposed never changes a reply, only how many forward
// passes it takes: every node is verified by the model's own choice at its parent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "decode/draft_tree.h"
#include "model/forward.h"

namespace espalier::decode {

class Generation;

struct DraftLimits {
    int32_t nodes_max = 0;
    int32_t depth_max = 0;
    int32_t rows_beside = 1;  // rows that the pass has anyway
    int32_t context = 0;      // position of the root
};

// Rows of the last pass that have just become part of a sequence, in order.
struct CommittedRows {
    const model::Forward* forward = nullptr;
    int32_t segment = 0;
    std::span<const int32_t> nodes;
    // A snapshot may follow, or the prompt goes on: what is kept beside the trunk's state has to catch up now.
    bool is_settling = false;
};

// The drafts of one request. Belongs to the engine thread. Steps allocate nothing.
class DraftSession {
public:
    virtual ~DraftSession() = default;

    // Fills the (empty) tree with what may follow the last token of the reply, or the whole prompt if there is no reply yet.
    virtual void propose(Generation& generation, const DraftLimits& limits, DraftTree& tree) = 0;
    // After each step that proposed: the reply has grown by the accepted nodes' tokens and one more. `path` = accepted nodes.
    virtual void observe(const Generation& generation, const DraftTree& tree, std::span<const int32_t> path) = 0;
    // Called right after every commit.
    virtual void committed(Generation&, const CommittedRows&) {}
};

// Makes sessions. Belongs to the engine thread and outlives them.
class Drafter {
public:
    virtual ~Drafter() = default;
    virtual std::unique_ptr<DraftSession> begin(Generation& generation) = 0;
    // Told how long a step took: rows and draft time are the whole pass'. Only of steps without prompt chunks.
    virtual void measured(int32_t /*rows*/, int32_t /*context*/, double /*verify_ms*/) {}
};

}  // namespace espalier::decode
