#include "decode/merged_drafts.h"

#include <algorithm>

#include "base/check.h"

namespace espalier::decode {
namespace {

constexpr size_t kKnownToolsMax = 4;
// A tree whose value has not risen for this many nodes is not looked at further: kernels take rows in blocks of about this size.
constexpr int32_t kLookAhead = 8;
// Places less probable than this are not worth looking at.
constexpr float kRateMin = 0.02f;
// The head is asked once in so many rounds even if it does not pay, to see whether it would by now.
constexpr int32_t kRoundsWithoutMtp = 64;
// What a right token of the head is worth beyond itself: it may be continued.
constexpr float kMtpContinuation = 0.5f;

}  // namespace

std::shared_ptr<const ToolText> Drafting::tool_text(const std::vector<text::ToolOutline>& tools) {
    const auto known =
        std::find_if(known_tools_.begin(), known_tools_.end(), [&](const KnownTools& entry) { return entry.tools == tools; });
    if (known != known_tools_.end()) return known->text;
    if (known_tools_.size() == kKnownToolsMax) known_tools_.erase(known_tools_.begin());
    known_tools_.push_back({tools, std::make_shared<const ToolText>(*parts_.tokenizer, parts_.tool_format, tools)});
    return known_tools_.back().text;
}

Status Drafting::attach(model::Forward& forward, int32_t vocab_usable) {
    if (options().is_off()) return {};
    if (options().has_mtp && forward.model().mtp() != nullptr) {
        TRY_ASSIGN(mtp_, MtpDrafter::create(forward, vocab_usable));
    }
    if (!parts_.is_measuring) return {};
    TRY(cost_.measure(forward));
    is_measured_ = true;
    return {};
}

std::unique_ptr<DraftSession> Drafting::begin(const Request& request) {
    if (options().is_off()) return nullptr;
    std::shared_ptr<const ToolText> text;
    if (options().has_template && parts_.tokenizer != nullptr && request.tools != nullptr) text = tool_text(*request.tools);
    return std::make_unique<MergedDrafts>(*this, request, std::move(text));
}

MergedDrafts::MergedDrafts(Drafting& drafting, const Drafting::Request& request, std::shared_ptr<const ToolText> tool_text)
    : drafting_(drafting), tool_text_(std::move(tool_text)), stop_ids_(request.stop_ids.begin(), request.stop_ids.end()) {
    if (drafting.options().has_suffix) {
        suffix_.emplace(static_cast<int32_t>(request.prompt.size()) + request.max_tokens);
        suffix_->append(request.prompt);
    }
    path_.reserve(kDraftNodesMax);
    proposals_.reserve(kProposalsMax);
    expansions_.reserve(kDraftNodesMax + 1);
    mtp_.reserve(kMtpStepsMax + 1);
    mtp_path_.reserve(kMtpStepsMax);
    if (drafting.mtp() != nullptr && request.sequence != nullptr) drafting.mtp()->open(mtp_rows_, *request.sequence);
    places_.reserve(kProposalsMax);
}

void MergedDrafts::follow(std::span<const TokenId> reply) {
    if (suffix_) suffix_->append(reply.subspan(n_indexed_));
    n_indexed_ = reply.size();
}

void MergedDrafts::path_to(int32_t node, const DraftTree& tree) {
    path_.clear();
    for (; node >= 0; node = tree[node].parent) path_.push_back(tree[node].token);
    std::reverse(path_.begin(), path_.end());
}

void MergedDrafts::propose_token(TokenId token, DraftKind kind, Evidence evidence) {
    const auto begin = proposals_.begin() + expansions_.back().begin;
    auto known = std::find_if(begin, proposals_.end(), [token](const Proposal& p) { return p.token == token; });
    if (known == proposals_.end()) {
        if (proposals_.size() == proposals_.capacity()) return;
        proposals_.push_back({token, 0, {}, {}});
        known = proposals_.end() - 1;
    }
    known->kinds |= bit(kind);
    known->by_kind[static_cast<size_t>(kind)] = evidence;
}

void MergedDrafts::ask_suffix() {
    if (!suffix_) return;
    SuffixIndex::Candidates candidates;
    const int32_t n = suffix_->candidates(path_, candidates);
    for (const auto& candidate : std::span(candidates).first(static_cast<size_t>(n)))
        propose_token(candidate.token, DraftKind::suffix, drafting_.odds().of_suffix(candidate));
}

void MergedDrafts::ask_template() {
    if (!tool_text_) return;
    std::array<ToolText::Candidate, ToolText::kCandidatesMax> candidates;
    const int32_t n = tool_text_->candidates(reply_, path_, candidates);
    for (const auto& candidate : std::span(candidates).first(static_cast<size_t>(n)))
        propose_token(candidate.token, DraftKind::template_text, drafting_.odds().of_template(candidate.place, n));
}

bool MergedDrafts::is_raw() const {
    return !drafting_.options().is_adaptive && !drafting_.options().has_suffix && !drafting_.options().has_template;
}

// The head has been given the path but for its last token, and no other child of that place.
bool MergedDrafts::is_mtp_at_tip() const {
    if (path_.empty()) return mtp_.empty();
    return mtp_.size() == path_.size() && static_cast<int32_t>(mtp_path_.size()) < drafting_.options().mtp_steps - 1 &&
           std::equal(mtp_path_.begin(), mtp_path_.end(), path_.begin());
}

// What the other sources have just proposed is at hand: a step earns what the head knows better.
bool MergedDrafts::mtp_pays(float path_probability) const {
    const double step_ms = drafting_.mtp()->step_ms();
    if (step_ms == 0 || !drafting_.is_measured()) return true;
    float best = 0;
    for (size_t i = static_cast<size_t>(expansions_.back().begin); i < proposals_.size(); ++i) {
        for (const Evidence& evidence : proposals_[i].by_kind) best = std::max(best, evidence.rate);
    }
    const float top = drafting_.odds().of_mtp_top(static_cast<int32_t>(path_.size()));
    const float gain = std::max(0.0f, top - best) * (1 + kMtpContinuation * top);
    return path_probability * gain * drafting_.cost().token_ms() > step_ms;
}

void MergedDrafts::read_mtp_row() {
    mtp_.emplace_back();
    mtp_.back().n = drafting_.mtp()->candidates(mtp_.back().candidates, drafting_.options().mtp_topk);
}

// The head's row for path_, of which it knows all but the last token.
bool MergedDrafts::run_mtp() {
    MtpDrafter& head = *drafting_.mtp();
    if (path_.empty()) {
        if (!head.begin(mtp_rows_, *sequence_, reply_.back())) return false;
    } else {
        if (!head.step(path_.back())) return false;
        mtp_path_.push_back(path_.back());
    }
    read_mtp_row();
    return true;
}

// All steps along the head's own first choices.
void MergedDrafts::run_mtp_chain() {
    MtpDrafter& head = *drafting_.mtp();
    if (!head.begin(mtp_rows_, *sequence_, reply_.back())) return;
    read_mtp_row();
    while (static_cast<int32_t>(mtp_.size()) < drafting_.options().mtp_steps && mtp_.back().n > 0) {
        const TokenId token = mtp_.back().candidates[0].token;
        if (!head.step(token)) return;
        mtp_path_.push_back(token);
        read_mtp_row();
    }
}

void MergedDrafts::ask_mtp(float path_probability) {
    if (drafting_.mtp() == nullptr || !mtp_rows_.is_usable() || sequence_ == nullptr || reply_.empty()) return;
    if (drafting_.options().is_adaptive && is_mtp_at_tip()) {
        const bool is_probe = path_.empty() && ++rounds_without_mtp_ >= kRoundsWithoutMtp;
        if (is_probe || mtp_pays(path_probability)) {
            rounds_without_mtp_ = 0;
            if (!run_mtp()) return;
        }
    }
    if (mtp_.size() <= path_.size()) return;
    const MtpRow& row = mtp_[path_.size()];
    const bool is_conditioned = path_.size() <= mtp_path_.size() && std::equal(path_.begin(), path_.end(), mtp_path_.begin());
    Expansion& expansion = expansions_.back();
    if (is_conditioned && row.n > 0) {
        expansion.mtp_top = row.candidates[0].token;
        expansion.mtp_depth = static_cast<int32_t>(path_.size());
    }
    for (int32_t i = 0; i < row.n; ++i) {
        MtpCandidate candidate = row.candidates[static_cast<size_t>(i)];
        candidate.is_conditioned = is_conditioned;
        Evidence evidence = drafting_.odds().of_mtp(candidate);
        if (is_raw()) evidence.rate = candidate.probability;
        propose_token(candidate.token, DraftKind::mtp, evidence);
    }
}

// Asks every source what may follow a node, and queues the answers.
void MergedDrafts::expand(int32_t node, float path_probability, const DraftTree& tree) {
    if (expansions_.size() == expansions_.capacity()) return;
    path_to(node, tree);
    expansions_.push_back({node, static_cast<int32_t>(proposals_.size()), 0, -1, 0});
    ask_template();
    ask_suffix();
    ask_mtp(path_probability);
    const auto begin = static_cast<size_t>(expansions_.back().begin);
    expansions_.back().end = static_cast<int32_t>(proposals_.size());
    const auto fresh = std::span(proposals_).subspan(begin);
    uint8_t spoken = 0;
    for (const Proposal& proposal : fresh) spoken |= proposal.kinds;
    float total = 0;
    for (Proposal& proposal : fresh) {
        float best = 0;
        for (const Evidence& evidence : proposal.by_kind) best = std::max(best, evidence.rate);
        proposal.all = drafting_.odds().of_all(proposal.kinds, spoken, best);
        if (is_raw()) proposal.all.rate = best;
        total += proposal.all.rate;
    }
    const float scale = path_probability / std::max(1.0f, total);
    for (size_t i = 0; i < fresh.size(); ++i) {
        if (std::find(stop_ids_.begin(), stop_ids_.end(), fresh[i].token) != stop_ids_.end()) continue;
        places_.push_back({fresh[i].all.rate * scale, node, static_cast<int32_t>(begin + i)});
        std::push_heap(places_.begin(), places_.end());
    }
}

// Takes places best-first, then cuts the tree to the size that earns most.
void MergedDrafts::grow(const DraftLimits& limits, DraftTree& tree) {
    const DraftOptions& options = drafting_.options();
    const CostModel& cost = drafting_.cost();
    const bool is_measured = drafting_.is_measured();
    int32_t nodes_max = std::min(limits.nodes_max, options.nodes_max);
    if (options.is_adaptive && !is_measured) nodes_max = std::min(nodes_max, drafting_.parts().nodes_unmeasured);
    const double base_ms = cost.verify_ms(limits.rows_beside, limits.context);
    double tokens = 0;
    double best_value = 0;
    int32_t best_size = 0;
    while (!places_.empty() && tree.size() < nodes_max) {
        std::pop_heap(places_.begin(), places_.end());
        const Place place = places_.back();
        places_.pop_back();
        if (options.is_adaptive && place.probability < kRateMin) break;
        const Proposal& proposal = proposals_[static_cast<size_t>(place.proposal)];
        const int32_t node = tree.add(place.parent, proposal.token, place.probability, proposal.kinds);
        tokens += place.probability;
        const double added_ms = cost.verify_ms(limits.rows_beside + tree.size(), limits.context) - base_ms;
        const double value = is_measured ? tokens * cost.token_ms() - added_ms : tokens;
        if (value > best_value) {
            best_value = value;
            best_size = tree.size();
        }
        if (is_measured && tree.size() - best_size >= kLookAhead) break;
        if (tree[node].depth < limits.depth_max) expand(node, place.probability, tree);
    }
    tree.cut(best_size);
}

void MergedDrafts::propose(std::span<const TokenId> reply, cache::Sequence* sequence, const DraftLimits& limits,
                           DraftTree& tree) {
    follow(reply);
    reply_ = reply;
    sequence_ = sequence;
    n_reply_ = reply.size();
    proposals_.clear();
    expansions_.clear();
    places_.clear();
    mtp_.clear();
    mtp_path_.clear();
    if (reply.empty() && !drafting_.options().has_prefill) return;
    const bool has_chain = drafting_.mtp() != nullptr && mtp_rows_.is_usable() && !reply.empty() && sequence != nullptr;
    if (has_chain && !drafting_.options().is_adaptive) run_mtp_chain();
    expand(-1, 1.0f, tree);
    grow(limits, tree);
    if (!mtp_.empty()) drafting_.mtp()->end(mtp_rows_, *sequence);
}

void MergedDrafts::committed(cache::Sequence& sequence, const CommittedRows& rows) {
    if (drafting_.mtp() != nullptr) drafting_.mtp()->committed(mtp_rows_, sequence, rows);
}

void MergedDrafts::observe(std::span<const TokenId> reply, const DraftTree&, std::span<const int32_t> path) {
    // Reached: the root and the accepted nodes. What was chosen there is known, but for a stop, which no source proposes.
    for (const Expansion& expansion : expansions_) {
        size_t depth = 0;
        if (expansion.node >= 0) {
            const auto at = std::find(path.begin(), path.end(), expansion.node);
            if (at == path.end()) continue;
            depth = static_cast<size_t>(at - path.begin()) + 1;
        }
        const TokenId chosen = n_reply_ + depth < reply.size() ? reply[n_reply_ + depth] : -1;
        if (expansion.mtp_top >= 0) drafting_.odds().learn_mtp_top(expansion.mtp_depth, expansion.mtp_top == chosen);
        for (int32_t i = expansion.begin; i < expansion.end; ++i) {
            const Proposal& proposal = proposals_[static_cast<size_t>(i)];
            const bool is_hit = proposal.token == chosen;
            for (int32_t kind = 0; kind < kDraftKinds; ++kind) {
                if ((proposal.kinds >> kind & 1) == 0) continue;
                drafting_.odds().learn(static_cast<DraftKind>(kind), proposal.by_kind[static_cast<size_t>(kind)].cell, is_hit);
            }
            drafting_.odds().learn_all(proposal.all.cell, is_hit);
        }
    }
    expansions_.clear();
}

}  // namespace espalier::decode
