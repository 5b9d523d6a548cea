// Drafts of the model's own MTP head, for several requests in turn.
//
// The head has keys and values of its own, beside the trunk's pages and carried with every snapshot. Slot p needs the trunk's
// hidden row of position p and the token at p + 1, so after each commit the rows are kept until the next token is known: those of
// a prompt are run at once, those of a reply together with the first draft step, of which they are part (catch-up costs no pass
// of its own). Slots of drafts are forgotten after each round.
//
// Rows of the output matrix are computed for the tokens that a request is likely to use (draft_vocabulary.h).
//
// A sequence whose slots are not complete (it was stored by an engine without drafts) gets no drafts from here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/sequence.h"
#include "decode/draft_options.h"
#include "decode/draft_vocabulary.h"
#include "decode/drafter.h"
#include "model/mtp.h"

namespace espalier::decode {

struct MtpCandidate {
    TokenId token = 0;
    float probability = 0;  // softmax of the head's row, over the rows that were computed
    int32_t rank = 0;
    int32_t depth = 0;           // draft steps before this one
    bool is_conditioned = true;  // the row was computed for this very path
};

class MtpDrafter {
public:
    // The trunk's model has an MTP head (CHECK). Errors: exhausted.
    static Result<std::unique_ptr<MtpDrafter>> create(model::Forward& trunk, int32_t vocab_usable);

    // What a request remembers between steps: hidden rows of positions mtp_length ... length - 1 of its sequence.
    class Rows {
    public:
        bool is_usable() const { return is_usable_; }
        int32_t size() const { return n_; }

    private:
        friend class MtpDrafter;
        std::vector<float> values_;  // [kRowsMax, hidden]
        std::optional<DraftVocabulary> vocabulary_;
        int32_t n_ = 0;
        bool is_usable_ = false;
    };

    // Before the request's first pass.
    void open(Rows& rows, const cache::Sequence& sequence);
    void committed(Rows& rows, cache::Sequence& sequence, const CommittedRows& committed);

    // A round: begin() runs the slots that are behind, of which the last one drafts the token after `root` (the last token
    // chosen, not yet in the sequence); step() drafts one further on. False: nothing can be drafted (any more) for this request.
    bool begin(Rows& rows, cache::Sequence& sequence, TokenId root);
    bool step(TokenId token);
    // The best candidates of the latest row, best first; at most topk.
    int32_t candidates(std::span<MtpCandidate, kMtpTopkMax> out, int32_t topk);
    // Keeps the slots of committed tokens, forgets those of drafts.
    void end(Rows& rows, cache::Sequence& sequence);

    // Time of one step at present, 0 while unknown; begin() takes a little longer.
    double step_ms() const { return step_ms_; }

private:
    MtpDrafter(model::Forward& trunk, std::unique_ptr<model::MtpHead> head, Buffer logits, int32_t vocab_usable);
    bool run_slots(cache::Sequence& sequence, std::span<const TokenId> tokens, const float* hidden);
    void drop(Rows& rows);
    std::span<const float> computed(const model::PanelRange& range) const;

    static constexpr int32_t kRowsMax = kDraftNodesMax + 2;

    model::Forward& trunk_;
    std::unique_ptr<model::MtpHead> head_;
    Buffer logits_;  // [vocab], valid in panels_
    std::span<const model::PanelRange> panels_;
    int32_t vocab_usable_;
    std::vector<float> gathered_;  // [rows_max, hidden]
    std::vector<TokenId> tokens_;
    int32_t n_nodes_ = 0;     // of the head since begin
    int32_t n_catch_up_ = 0;  // of them, slots of committed tokens
    int32_t depth_ = 0;
    double step_ms_ = 0;
};

}  // namespace espalier::decode
