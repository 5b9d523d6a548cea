// All sources of drafts in one tree (speculation as the step loop asks for it).
//
// The tree grows best-first: the most probable place that is not in it yet is taken, and every source is asked what may follow
// there. A suffix match or a template continues whatever stands at the tip, so a token of the MTP head is prolonged for free. The
// head itself costs time: it follows the first path that is taken, one step at a time, while a step pays. Because probabilities
// fall along a path, the best n places always form a tree (OPT-Tree, arXiv 2406.17276), and the one size that earns most is a
// prefix of the order in which they were taken: n is worth it while the expected tokens, at what a token costs in the long run,
// pay for the rows.
//
// With fixed sizes (--draft mtp:steps=8,topk=2,nodes=16) the head runs all its steps along its own first choices, and the tree
// takes any candidate of a depth below any node of the depth before, best-first by the head's own probabilities.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decode/cost_model.h"
#include "decode/draft_odds.h"
#include "decode/draft_options.h"
#include "decode/drafter.h"
#include "decode/mtp_drafter.h"
#include "decode/suffix_index.h"
#include "decode/tool_text.h"

namespace espalier::decode {

// What the sessions of one engine share. Belongs to its thread and outlives them.
class Drafting {
public:
    struct Parts {
        DraftOptions options;
        // Null: tool calls have no fixed text.
        const text::Tokenizer* tokenizer = nullptr;
        text::ToolFormat tool_format;
        // False: a tree has the same size on any machine, whatever a pass costs there (replays, tests).
        bool is_measuring = true;
        // Of a tree whose size nothing else decides.
        int32_t nodes_unmeasured = 16;
    };
    explicit Drafting(Parts parts) : parts_(std::move(parts)) {}
    // Measures what passes cost if it is to, and makes the MTP head's scratch if that is to draft. forward must outlive this.
    // Errors: exhausted.
    Status attach(model::Forward& forward, int32_t vocab_usable);

    struct Request {
        std::span<const TokenId> prompt;
        int32_t max_tokens = 0;
        const std::vector<text::ToolOutline>* tools = nullptr;
        std::span<const TokenId> stop_ids;          // never worth a draft: nothing follows them
        const cache::Sequence* sequence = nullptr;  // what is restored of the prompt; null where no model runs
    };
    // Null when nothing is to be drafted.
    std::unique_ptr<DraftSession> begin(const Request& request);

    const Parts& parts() const { return parts_; }
    const DraftOptions& options() const { return parts_.options; }
    bool is_measured() const { return is_measured_ && options().is_adaptive; }
    DraftOdds& odds() { return odds_; }
    CostModel& cost() { return cost_; }
    MtpDrafter* mtp() { return mtp_.get(); }

private:
    std::shared_ptr<const ToolText> tool_text(const std::vector<text::ToolOutline>& tools);

    Parts parts_;
    DraftOdds odds_;
    CostModel cost_;
    bool is_measured_ = false;
    std::unique_ptr<MtpDrafter> mtp_;
    // The latest sets of tools: an agent sends the same ones every turn.
    struct KnownTools {
        std::vector<text::ToolOutline> tools;
        std::shared_ptr<const ToolText> text;
    };
    std::vector<KnownTools> known_tools_;
};

class MergedDrafts : public DraftSession {
public:
    MergedDrafts(Drafting& drafting, const Drafting::Request& request, std::shared_ptr<const ToolText> tool_text);

    void propose(std::span<const TokenId> reply, cache::Sequence* sequence, const DraftLimits& limits, DraftTree& tree) override;
    void observe(std::span<const TokenId> reply, const DraftTree& tree, std::span<const int32_t> path) override;
    void committed(cache::Sequence& sequence, const CommittedRows& rows) override;

private:
    static constexpr size_t kProposalsMax = 1024;

    // A token that may follow a node, whether or not it gets into the tree.
    struct Proposal {
        TokenId token = 0;
        uint8_t kinds = 0;
        std::array<Evidence, kDraftKinds> by_kind;
        Evidence all;
    };
    struct Expansion {
        int32_t node = -1;
        int32_t begin = 0;  // in proposals_
        int32_t end = 0;
        TokenId mtp_top = -1;  // the head's first candidate for this very path
        int32_t mtp_depth = 0;
    };
    struct Place {
        float probability = 0;  // of the path
        int32_t parent = -1;
        int32_t proposal = 0;
        bool operator<(const Place& other) const {
            // A heap's top is the greatest; the earlier proposal among equals.
            return probability < other.probability || (probability == other.probability && proposal > other.proposal);
        }
    };
    // The MTP head in this round.
    struct MtpRow {
        std::array<MtpCandidate, kMtpTopkMax> candidates;
        int32_t n = 0;
    };

    void follow(std::span<const TokenId> reply);
    void expand(int32_t node, float path_probability, const DraftTree& tree);
    void ask_suffix();
    void ask_template();
    void ask_mtp(float path_probability);
    void propose_token(TokenId token, DraftKind kind, Evidence evidence);
    void path_to(int32_t node, const DraftTree& tree);
    void grow(const DraftLimits& limits, DraftTree& tree);

    bool is_mtp_at_tip() const;
    bool mtp_pays(float path_probability) const;
    bool run_mtp();
    void run_mtp_chain();
    void read_mtp_row();
    // Nothing but the head, of a fixed size: its own probabilities count.
    bool is_raw() const;

    Drafting& drafting_;
    std::optional<SuffixIndex> suffix_;
    std::shared_ptr<const ToolText> tool_text_;
    std::vector<TokenId> stop_ids_;
    size_t n_indexed_ = 0;       // tokens of the reply in the index
    size_t n_reply_ = 0;         // when the tree was proposed
    std::vector<TokenId> path_;  // to the node that is being expanded
    std::span<const TokenId> reply_;
    cache::Sequence* sequence_ = nullptr;  // during propose
    std::vector<Proposal> proposals_;
    std::vector<Expansion> expansions_;
    std::vector<Place> places_;  // a heap
    MtpDrafter::Rows mtp_rows_;
    std::vector<MtpRow> mtp_;        // one for each token of mtp_path_, and one before them
    std::vector<TokenId> mtp_path_;  // tokens that the head has been given
    int32_t rounds_without_mtp_ = 0;
};

}  // namespace espalier::decode
