// One request while it runs: its sequence, how much of the prompt is done, the reply so far, and when it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/sequence.h"
#include "decode/drafter.h"
#include "decode/sampler.h"
#include "decode/stop_matcher.h"
#include "text/tokenizer.h"

namespace espalier::decode {

struct GenerationParams {
    SamplerParams sampling;
    int32_t max_tokens = 0;  // >= 1
    std::vector<TokenId> stop_ids;
    std::vector<std::string> stop_strings;
    std::vector<int32_t> boundaries;  // prompt lengths worth a snapshot, ascending
    int32_t n_logprobs = -1;
};

// broken: the logits were not finite (damaged weights, or values beyond float).
enum class EndReason { none, stop_id, stop_string, length, broken };

class Generation {
public:
    // `sequence` holds a prefix of `prompt` (may be empty, may be all of it: see needs_first_token); capacity for the whole reply
    // is reserved here, so that steps allocate nothing. tokenizer may be null when there are no stop strings; it must outlive the
    // generation.
    Generation(cache::Sequence sequence, std::vector<TokenId> prompt, GenerationParams params, const text::Tokenizer* tokenizer);

    cache::Sequence& sequence() { return sequence_; }
    const cache::Sequence& sequence() const { return sequence_; }
    const GenerationParams& params() const { return params_; }
    std::span<const TokenId> prompt() const { return prompt_; }
    std::span<const TokenId> reply() const { return reply_; }
    std::span<const std::vector<TokenLogprob>> logprobs() const { return logprobs_; }
    int32_t cached_tokens() const { return cached_tokens_; }

    // Prompt tokens not yet in the sequence.
    int32_t prompt_left() const;
    bool is_prefilling() const { return prompt_left() > 0; }
    // The whole prompt was restored: StepLoop::choose_first() comes before the first step.
    bool needs_first_token() const { return !is_prefilling() && reply_.empty() && !is_done(); }
    bool is_done() const { return reason_ != EndReason::none; }
    EndReason reason() const { return reason_; }
    // Bytes of the reply's text before a matched stop string, -1 = all.
    int64_t kept_text_bytes() const { return kept_text_bytes_; }

    // The token to run next when the prompt is done: the last one chosen, not yet in the sequence.
    TokenId root() const { return reply_.back(); }
    // Takes a chosen token: appends it to the reply, or ends (a stop id is not part of the reply).
    void accept(TokenId token);
    // Ends without a token.
    void fail() { reason_ = EndReason::broken; }
    void record_logprobs(std::vector<TokenLogprob> row) { logprobs_.push_back(std::move(row)); }

    // What drafts for this request; null = nothing does.
    DraftSession* drafts() const { return drafts_.get(); }
    void set_drafts(std::unique_ptr<DraftSession> drafts) { drafts_ = std::move(drafts); }

    // Forwards after the prompt.
    int32_t rounds = 0;
    DraftCounts draft_counts;

private:
    cache::Sequence sequence_;
    std::vector<TokenId> prompt_;
    GenerationParams params_;
    std::vector<TokenId> reply_;
    std::vector<std::vector<TokenLogprob>> logprobs_;
    int32_t cached_tokens_ = 0;
    std::optional<text::DecodeStream> decoder_;
    StopMatcher stops_;
    EndReason reason_ = EndReason::none;
    int64_t kept_text_bytes_ = -1;
    std::unique_ptr<DraftSession> drafts_;
};

}  // namespace espalier::decode
