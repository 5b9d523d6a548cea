#include "server/reply_decoder.h"

#include <algorithm>

namespace espalier::server {

ReplyDecoder::ReplyDecoder(const text::Tokenizer& tokenizer, std::vector<std::string> stops, const text::ToolFormat& format,
                           const std::vector<text::Value>& tools, text::PromptState state)
    : tokenizer_(tokenizer), stream_(tokenizer), filter_(std::move(stops)), parser_(std::in_place, format, tools, state) {
    for (const std::string_view tag : {format.call_open, format.call_close, format.think_open, format.think_close}) {
        if (!tag.empty()) format_ids_.push_back(tokenizer.added_token_id(tag));
    }
}

ReplyDecoder::ReplyDecoder(const text::Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stream_(tokenizer), filter_(std::move(stops)) {}

void ReplyDecoder::push(text::TokenId id, std::vector<text::OutputDelta>& out) {
    std::vector<TextRun> released;
    if (tokenizer_.is_added(id)) {
        // An added token ends an unfinished character, so that it stays a run of its own.
        filter_.push({stream_.flush(), RunKind::text}, released);
        filter_.push({std::string(tokenizer_.token_bytes(id)), kind_of_added(id)}, released);
    } else {
        filter_.push({stream_.push(id), RunKind::text}, released);
    }
    parse(released, out);
}

void ReplyDecoder::push_forced(std::vector<TextRun> runs, std::vector<text::OutputDelta>& out) {
    parse(runs, out);
}

std::string ReplyDecoder::finish(text::StopCause cause, int64_t kept_text_bytes, std::vector<text::OutputDelta>& out) {
    std::vector<TextRun> released;
    filter_.push({stream_.flush(), RunKind::text}, released);
    filter_.finish(kept_text_bytes, released);
    parse(released, out);
    if (filter_.has_matched()) cause = text::StopCause::eos;
    if (!parser_) return cause == text::StopCause::length ? "length" : "stop";
    parser_->finish(cause, out);
    return parser_->parsed().finish_reason;
}

std::map<std::string, int> ReplyDecoder::repairs() const {
    return parser_ ? parser_->repairs() : std::map<std::string, int>();
}

RunKind ReplyDecoder::kind_of_added(text::TokenId id) const {
    const bool is_of_format = std::find(format_ids_.begin(), format_ids_.end(), id) != format_ids_.end();
    return tokenizer_.is_special(id) && !is_of_format ? RunKind::hidden : RunKind::marker;
}

void ReplyDecoder::parse(const std::vector<TextRun>& runs, std::vector<text::OutputDelta>& out) {
    for (const TextRun& run : runs) {
        if (run.kind == RunKind::hidden) continue;
        if (parser_) {
            parser_->push(run.text, run.kind == RunKind::marker, out);
        } else {
            out.push_back({text::OutputDelta::Kind::content, -1, "", run.text});
        }
    }
}

}  // namespace espalier::server
