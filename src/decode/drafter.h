// Who proposes tokens ahead of the model, as the step loop sees it. What is proposed never changes a reply, only how many forward
// passes it takes: every node is verified by the model's own choice at its parent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/sequence.h"
#include "decode/draft_tree.h"
#include "model/forward.h"

namespace espalier::decode {

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
    bool is_prompt = false;  // not chosen by the model
};

// The drafts of one request. Belongs to the engine thread. Steps allocate nothing.
class DraftSession {
public:
    virtual ~DraftSession() = default;

    // Fills the (empty) tree with what may follow the reply so far, or the whole prompt if the reply is empty. sequence: what is
    // committed; the reply's last token is not. Null where no model runs.
    virtual void propose(std::span<const TokenId> reply, cache::Sequence* sequence, const DraftLimits& limits,
                         DraftTree& tree) = 0;
    // After each step that proposed: the reply has grown by the accepted nodes' tokens, and one more unless it has ended. `path`
    // = accepted nodes.
    virtual void observe(std::span<const TokenId> reply, const DraftTree& tree, std::span<const int32_t> path) = 0;
    // Called right after every commit.
    virtual void committed(cache::Sequence&, const CommittedRows&) {}
};

}  // namespace espalier::decode
