// From token ids to reply deltas: detokenise, cut at stop strings, parse. One per choice.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/stop_filter.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace espalier::server {

class ReplyDecoder {
public:
    // A chat reply. Tokenizer and format must outlive the decoder.
    ReplyDecoder(const text::Tokenizer& tokenizer, std::vector<std::string> stops, const text::ToolFormat& format,
                 const std::vector<text::Value>& tools, text::PromptState state);
    // A bare completion: all text is content.
    ReplyDecoder(const text::Tokenizer& tokenizer, std::vector<std::string> stops);

    void push(text::TokenId id, std::vector<text::OutputDelta>& out);
    // Text that the prompt already holds although it belongs to the reply (a forced call's head).
    void push_forced(std::vector<TextRun> runs, std::vector<text::OutputDelta>& out);
    // kept_text_bytes: as JobEvent::kept_text_bytes. Returns "stop", "tool_calls" or "length".
    std::string finish(text::StopCause cause, int64_t kept_text_bytes, std::vector<text::OutputDelta>& out);
    // Repairs of the output by kind, for log and metrics.
    std::map<std::string, int> repairs() const;

private:
    RunKind kind_of_added(text::TokenId id) const;
    void parse(const std::vector<TextRun>& runs, std::vector<text::OutputDelta>& out);

    const text::Tokenizer& tokenizer_;
    std::vector<text::TokenId> format_ids_;  // tokens that the format is written with; some files flag them as control tokens
    text::DecodeStream stream_;
    StopFilter filter_;
    std::optional<text::OutputParser> parser_;
};

}  // namespace espalier::server
