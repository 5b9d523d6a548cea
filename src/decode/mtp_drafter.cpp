#include "decode/mtp_drafter.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/matmul/matmul.h"

namespace espalier::decode {
namespace {

constexpr double kBlend = 0.1;
// Below the best logit by more than this a token adds less than a millionth to the sum.
constexpr float kNegligible = 14.0f;

}  // namespace

Result<std::unique_ptr<MtpDrafter>> MtpDrafter::create(model::Forward& trunk, int32_t vocab_usable) {
    TRY_ASSIGN(auto head, model::MtpHead::create(trunk));
    TRY_ASSIGN(Buffer logits, Buffer::allocate(static_cast<size_t>(trunk.model().config().vocab) * sizeof(float)));
    return std::unique_ptr<MtpDrafter>(new MtpDrafter(trunk, std::move(head), std::move(logits), vocab_usable));
}

MtpDrafter::MtpDrafter(model::Forward& trunk, std::unique_ptr<model::MtpHead> head, Buffer logits, int32_t vocab_usable)
    : trunk_(trunk),
      head_(std::move(head)),
      logits_(std::move(logits)),
      vocab_usable_(std::min(vocab_usable, trunk.model().config().vocab)) {
    const auto n_rows = static_cast<size_t>(trunk.limits().rows_max);
    gathered_.resize(n_rows * static_cast<size_t>(trunk.model().config().hidden));
    tokens_.reserve(n_rows);
}

void MtpDrafter::drop(Rows& rows) {
    rows.is_usable_ = false;
    rows.n_ = 0;
}

// The rows of a request that is new here: that of the last committed position comes with the state.
void MtpDrafter::open(Rows& rows, const cache::Sequence& sequence) {
    rows.is_usable_ = true;
    const auto hidden = static_cast<size_t>(trunk_.model().config().hidden);
    rows.values_.resize(static_cast<size_t>(kRowsMax) * hidden);
    rows.vocabulary_.emplace(trunk_.model().config().vocab);
    rows.vocabulary_->add(sequence.tokens());
    if (sequence.length() == 0) return;
    if (sequence.mtp_length() != sequence.length() - 1) return drop(rows);
    std::memcpy(rows.values_.data(), sequence.memory().hidden(sequence.state()), hidden * sizeof(float));
    rows.n_ = 1;
}

bool MtpDrafter::run_slots(cache::Sequence& sequence, std::span<const TokenId> tokens, const float* hidden) {
    head_->start(sequence);
    return head_->extend(tokens, hidden).has_value() && head_->keep(static_cast<int32_t>(tokens.size())).has_value();
}

void MtpDrafter::committed(Rows& rows, cache::Sequence& sequence, const CommittedRows& committed) {
    const auto n_new = static_cast<int32_t>(committed.nodes.size());
    if (!rows.is_usable_) return;
    const auto hidden = static_cast<size_t>(trunk_.model().config().hidden);
    const int32_t begin = sequence.mtp_length();
    CHECK(begin + rows.n_ + n_new == sequence.length(), "every committed row is announced");
    const auto fresh = sequence.tokens().last(static_cast<size_t>(n_new));
    if (committed.is_prompt) rows.vocabulary_->add(fresh);
    else rows.vocabulary_->observe(fresh);
    if (!committed.is_settling && rows.n_ + n_new <= kRowsMax) {
        for (const int32_t node : committed.nodes) {
            std::memcpy(rows.values_.data() + static_cast<size_t>(rows.n_++) * hidden,
                        committed.forward->hidden(committed.segment, node), hidden * sizeof(float));
        }
        return;
    }
    // All slots but the last one, whose next token is not known, in pieces that a pass takes.
    const int32_t n_slots = rows.n_ + n_new - 1;
    const auto row = [&](int32_t i) {
        return i < rows.n_ ? rows.values_.data() + static_cast<size_t>(i) * hidden
                           : committed.forward->hidden(committed.segment, committed.nodes[static_cast<size_t>(i - rows.n_)]);
    };
    for (int32_t done = 0; done < n_slots;) {
        const int32_t n = std::min(n_slots - done, trunk_.limits().rows_max);
        for (int32_t i = 0; i < n; ++i)
            std::memcpy(gathered_.data() + static_cast<size_t>(i) * hidden, row(done + i), hidden * sizeof(float));
        const auto tokens = sequence.tokens().subspan(static_cast<size_t>(begin + done + 1), static_cast<size_t>(n));
        if (!run_slots(sequence, tokens, gathered_.data())) return drop(rows);
        done += n;
    }
    if (n_slots < 0) return;
    std::memmove(rows.values_.data(), row(n_slots), hidden * sizeof(float));
    rows.n_ = 1;
}

bool MtpDrafter::begin(Rows& rows, cache::Sequence& sequence, TokenId root) {
    if (!rows.is_usable_ || rows.n_ == 0) return false;
    const auto known = sequence.tokens().subspan(static_cast<size_t>(sequence.mtp_length() + 1));
    CHECK(static_cast<int32_t>(known.size()) + 1 == rows.n_, "the rows of all slots that are behind");
    tokens_.assign(known.begin(), known.end());
    tokens_.push_back(root);
    head_->start(sequence);
    if (!head_->extend(tokens_, rows.values_.data())) return false;
    n_nodes_ = n_catch_up_ = rows.n_;
    depth_ = 0;
    panels_ = rows.vocabulary_->panels();
    head_->logits_of(n_nodes_ - 1, panels_, logits_.as<float>());
    return true;
}

bool MtpDrafter::step(TokenId token) {
    const auto begin = std::chrono::steady_clock::now();
    if (!head_->extend({&token, 1}, head_->output(n_nodes_ - 1))) return false;
    ++n_nodes_;
    ++depth_;
    head_->logits_of(n_nodes_ - 1, panels_, logits_.as<float>());
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    step_ms_ = step_ms_ == 0 ? ms : (1 - kBlend) * step_ms_ + kBlend * std::min(ms, 3 * step_ms_);
    return true;
}

// The ids of a range that the tokenizer knows.
std::span<const float> MtpDrafter::computed(const model::PanelRange& range) const {
    const int64_t end = std::min<int64_t>(range.end * kernels::kPanelRows, vocab_usable_);
    const int64_t begin = std::min(range.begin * kernels::kPanelRows, end);
    return {logits_.as<float>() + begin, static_cast<size_t>(end - begin)};
}

int32_t MtpDrafter::candidates(std::span<MtpCandidate, kMtpTopkMax> out, int32_t topk) {
    float best = -std::numeric_limits<float>::infinity();
    for (const model::PanelRange& range : panels_) {
        const auto logits = computed(range);
        if (logits.empty()) continue;
        float value = 0;
        int64_t index = 0;
        trunk_.model().kernels().argmax({logits.data(), static_cast<int64_t>(logits.size()), &value, &index});
        if (!std::isfinite(value)) return 0;
        best = std::max(best, value);
    }
    if (!std::isfinite(best)) return 0;
    double total = 0;
    int32_t n = 0;
    const float floor = best - kNegligible;
    for (const model::PanelRange& range : panels_) {
        const auto logits = computed(range);
        const auto first = static_cast<TokenId>(range.begin * kernels::kPanelRows);
        for (size_t i = 0; i < logits.size(); ++i) {
            const float logit = logits[i];
            if (logit < floor) continue;
            total += std::exp(static_cast<double>(logit - best));
            if (n == topk && logit <= out[static_cast<size_t>(n - 1)].probability) continue;
            // Sorted by logit, the lower id first among equals; probabilities follow below.
            if (n < topk) ++n;
            int32_t at = n - 1;
            for (; at > 0 && out[static_cast<size_t>(at - 1)].probability < logit; --at)
                out[static_cast<size_t>(at)] = out[static_cast<size_t>(at - 1)];
            out[static_cast<size_t>(at)] = {first + static_cast<TokenId>(i), logit, 0, depth_, true};
        }
    }
    for (int32_t rank = 0; rank < n; ++rank) {
        MtpCandidate& candidate = out[static_cast<size_t>(rank)];
        candidate.rank = rank;
        candidate.probability = static_cast<float>(std::exp(static_cast<double>(candidate.probability - best)) / total);
    }
    return n;
}

void MtpDrafter::end(Rows& rows, cache::Sequence& sequence) {
    if (!head_->keep(n_catch_up_)) return drop(rows);
    CHECK(sequence.mtp_length() == sequence.length(), "the slots of all committed tokens");
    rows.n_ = 0;
}

}  // namespace espalier::decode
