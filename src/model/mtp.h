// The multi-token-prediction head: one extra attention layer that, from the trunk's normed hidden row of token t_p and the
// embedding of t_{p+1}, predicts t_{p+2}. Slot p has position p and its own keys and values beside the trunk's pages.
//
//   x = fc [ norm_e(embed(token)) ; norm_h(hidden) ];  x = decoder layer(x);  m = norm(x);  logits = head m
//
// Catch-up runs the slots of newly committed tokens with the trunk's hidden rows and keeps them. Drafting continues the chain
// with the head's own output m as hidden row; those slots are never kept.
//
// Thread: the engine thread. Shares scratch with the trunk: use between trunk passes; the trunk's hidden rows stay valid.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/forward.h"

namespace espalier::model {

class MtpHead {
public:
    // The model must have an MTP head (CHECK). `trunk` must outlive it. Errors: exhausted.
    static Result<std::unique_ptr<MtpHead>> create(Forward& trunk);

    // Starts at slot sequence.mtp_length(). Forgets nodes of an earlier start.
    void start(cache::Sequence& sequence);
    // Adds nodes in chain order: tokens[i] with hidden row i ([n, hidden], row stride = hidden size; may be output() rows).
    // Errors: exhausted when more than rows_max nodes were added since start.
    Status extend(std::span<const TokenId> tokens, const float* hidden_rows);
    // mtp.norm'ed output row of a node since start.
    const float* output(int32_t node) const;
    void logits(int32_t node_begin, int32_t n_nodes, float* out);
    // Of one node, only the rows of some panels of the output matrix; others of out [vocab] are left as they are.
    void logits_of(int32_t node, std::span<const PanelRange> panels, float* out);
    // Keeps the first n nodes as slots of the sequence. n may not pass the sequence's length. Errors: exhausted.
    Status keep(int32_t n_nodes);

private:
    MtpHead(Forward& trunk, Buffer output);

    Forward& trunk_;
    const MtpWeights& weights_;
    Pass pass_;
    Buffer output_;  // [rows_max, hidden]
    cache::Sequence* sequence_ = nullptr;
    std::vector<TokenId> tokens_;
    std::vector<int32_t> rows_;  // 0, 1, 2, … for commit
};

}  // namespace espalier::model
