#include "decode/generation.h"

#include <algorithm>

#include "base/check.h"

namespace espalier::decode {

Generation::Generation(cache::Sequence sequence, std::vector<TokenId> prompt, GenerationParams params,
                       const text::Tokenizer* tokenizer)
    : sequence_(std::move(sequence)), prompt_(std::move(prompt)), params_(std::move(params)), stops_(params_.stop_strings) {
    CHECK(sequence_.length() <= static_cast<int32_t>(prompt_.size()), "the sequence holds a prefix of the prompt");
    CHECK(params_.max_tokens >= 1, "a reply has room for a token");
    cached_tokens_ = sequence_.length();
    reply_.reserve(static_cast<size_t>(params_.max_tokens));
    if (!stops_.is_idle()) {
        CHECK(tokenizer != nullptr, "stop strings need a tokenizer");
        decoder_.emplace(*tokenizer);
    }
}

int32_t Generation::prompt_left() const {
    return std::max(0, static_cast<int32_t>(prompt_.size()) - sequence_.length());
}

void Generation::accept(TokenId token) {
    if (std::find(params_.stop_ids.begin(), params_.stop_ids.end(), token) != params_.stop_ids.end()) {
        reason_ = EndReason::stop_id;
        return;
    }
    reply_.push_back(token);
    if (decoder_) {
        const int64_t match = stops_.push(decoder_->push(token));
        if (match >= 0) {
            kept_text_bytes_ = match;
            reason_ = EndReason::stop_string;
            return;
        }
    }
    if (static_cast<int32_t>(reply_.size()) >= params_.max_tokens) reason_ = EndReason::length;
}

}  // namespace espalier::decode
