#include "quant/token_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "text/chat_request.h"
#include "text/chat_value.h"

namespace espalier::quant {
namespace {

using text::Value;

constexpr size_t kSequenceTokensMax = 4096;
constexpr size_t kSequenceTokensMin = 2;  // a prediction needs two
constexpr size_t kHeldOutEvery = 8;

Error bad(std::string_view where, std::string_view found) {
    return invalid_input(
        fmt::format("{}: {}; expected {{\"messages\", \"tools\"}}, {{\"text\"}} or an array of token ids", where, found));
}

Result<std::string> string_of(const Value& object, std::string_view key, std::string_view where) {
    const Value* value = object.find(key);
    if (value == nullptr || value->is_none()) return std::string();
    if (value->as_string() == nullptr) return bad(where, fmt::format("\"{}\" is no string", key));
    return *value->as_string();
}

// Content is a string or a list of text parts.
Result<std::string> content_of(const Value& content, std::string_view where) {
    if (const std::string* plain = content.as_string()) return *plain;
    if (content.as_list() == nullptr) return bad(where, "\"content\" is neither a string nor a list of parts");
    std::string all;
    for (const Value& part : *content.as_list()) {
        TRY_ASSIGN(const std::string piece, string_of(part, "text", where));
        all += piece;
    }
    return all;
}

Result<text::ToolCallMessage> call_of(const Value& value, std::string_view where) {
    text::ToolCallMessage call;
    TRY_ASSIGN(call.id, string_of(value, "id", where));
    const Value* nested = value.find("function");
    const Value& function = nested != nullptr ? *nested : value;
    TRY_ASSIGN(call.name, string_of(function, "name", where));
    const Value* arguments = function.find("arguments");
    if (arguments == nullptr) {
        call.arguments = "{}";
    } else if (const std::string* json = arguments->as_string()) {
        call.arguments = *json;
    } else {
        TRY_ASSIGN(call.arguments, text::to_json_text(*arguments));
    }
    return call;
}

Result<text::ChatMessage> message_of(const Value& value, std::string_view where) {
    if (value.as_dict() == nullptr) return bad(where, "a message is no object");
    text::ChatMessage message;
    TRY_ASSIGN(message.role, string_of(value, "role", where));
    if (message.role.empty()) return bad(where, "a message has no \"role\"");
    if (const Value* content = value.find("content"); content != nullptr && !content->is_none()) {
        TRY_ASSIGN(message.content, content_of(*content, where));
    }
    TRY_ASSIGN(std::string reasoning, string_of(value, "reasoning_content", where));
    if (!reasoning.empty()) message.reasoning_content = std::move(reasoning);
    if (const Value* calls = value.find("tool_calls"); calls != nullptr && calls->as_list() != nullptr) {
        for (const Value& call : *calls->as_list()) {
            TRY_ASSIGN(text::ToolCallMessage read, call_of(call, where));
            message.tool_calls.push_back(std::move(read));
        }
    }
    TRY_ASSIGN(message.tool_call_id, string_of(value, "tool_call_id", where));
    TRY_ASSIGN(message.name, string_of(value, "name", where));
    return message;
}

// Errors: the tokenizer knows more tokens than the model.
Result<std::vector<TokenId>> ids_of_text(const text::Tokenizer& tokenizer, std::string_view text, text::SpecialTokens special,
                                         int32_t vocab, std::string_view where) {
    std::vector<TokenId> ids = tokenizer.encode(text, special);
    const auto largest = std::max_element(ids.begin(), ids.end());
    if (largest == ids.end() || *largest < vocab) return ids;
    return invalid_input(
        fmt::format("{}: the tokenizer gives id {}, the model has a vocabulary of {}; tokenizer.json is of another "
                    "model",
                    where, *largest, vocab));
}

Result<std::vector<TokenId>> ids_of_chat(const Value& record, const Value& messages, const TextModel& model, int32_t vocab,
                                         std::string_view where) {
    if (model.tokenizer == nullptr || model.chat_template == nullptr) {
        return invalid_input(
            fmt::format("{}: a chat record needs the model's tokenizer.json and chat template, which its folder "
                        "lacks; give token ids instead (--calib)",
                        where));
    }
    if (messages.as_list() == nullptr || messages.as_list()->empty()) return bad(where, "\"messages\" is no list of messages");
    text::ChatRequest request;
    for (const Value& value : *messages.as_list()) {
        TRY_ASSIGN(text::ChatMessage message, message_of(value, where));
        request.messages.push_back(std::move(message));
    }
    if (const Value* tools = record.find("tools"); tools != nullptr && tools->as_list() != nullptr)
        request.tools = *tools->as_list();
    request.add_generation_prompt = request.messages.back().role != "assistant";
    const auto text = text::render_chat_text(*model.chat_template, request);
    if (!text) return Error{text.error().code, fmt::format("{}: {}", where, text.error().message)};
    return ids_of_text(*model.tokenizer, *text, text::SpecialTokens::all, vocab, where);
}

Result<std::vector<TokenId>> ids_of_list(const text::ValueList& list, std::string_view where, int32_t vocab) {
    std::vector<TokenId> ids;
    for (const Value& value : list) {
        const int64_t* id = value.as_int();
        if (id == nullptr) return bad(where, fmt::format("element {} is no token id", ids.size()));
        if (*id < 0 || *id >= vocab) {
            return invalid_input(
                fmt::format("{}: token id {} at {} is outside the vocabulary of {}", where, *id, ids.size(), vocab));
        }
        ids.push_back(static_cast<TokenId>(*id));
    }
    return ids;
}

// Adds the sequences of one JSON value: a record, or an array of arrays.
Status add_record(const Value& record, std::string_view where, const TextModel& model, int32_t vocab,
                  std::vector<std::vector<TokenId>>& out) {
    if (const text::ValueList* list = record.as_list()) {
        if (!list->empty() && list->front().as_list() != nullptr) {
            for (const Value& inner : *list) {
                if (inner.as_list() == nullptr) return bad(where, "an array of arrays holds something else");
                TRY_ASSIGN(auto ids, ids_of_list(*inner.as_list(), where, vocab));
                out.push_back(std::move(ids));
            }
            return {};
        }
        TRY_ASSIGN(auto ids, ids_of_list(*list, where, vocab));
        out.push_back(std::move(ids));
        return {};
    }
    if (const Value* messages = record.find("messages")) {
        TRY_ASSIGN(auto ids, ids_of_chat(record, *messages, model, vocab, where));
        out.push_back(std::move(ids));
        return {};
    }
    const Value* plain = record.find("text");
    if (plain == nullptr || plain->as_string() == nullptr) return bad(where, "the line is none of the known records");
    if (model.tokenizer == nullptr) return invalid_input(fmt::format("{}: text needs the model's tokenizer.json", where));
    TRY_ASSIGN(auto ids, ids_of_text(*model.tokenizer, *plain->as_string(), text::SpecialTokens::none, vocab, where));
    out.push_back(std::move(ids));
    return {};
}

Status add_lines(std::string_view file, std::string_view name, const TextModel& model, int32_t vocab,
                 std::vector<std::vector<TokenId>>& out) {
    int64_t line_number = 0;
    for (size_t begin = 0; begin < file.size();) {
        const size_t end = std::min(file.find('\n', begin), file.size());
        const std::string_view line = file.substr(begin, end - begin);
        begin = end + 1;
        ++line_number;
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string where = fmt::format("{}: line {}", name, line_number);
        TRY_ASSIGN(const Value record, text::parse_json_value(line, where));
        TRY(add_record(record, where, model, vocab, out));
    }
    return {};
}

// Indices 0 .. n-1 in an order whose every beginning covers the range evenly (their bits reversed): neighbours in a file are
// often alike.
std::vector<size_t> spread_order(size_t n) {
    const int n_bits = std::bit_width(n - 1);
    std::vector<size_t> order;
    for (size_t i = 0; i < size_t{1} << n_bits; ++i) {
        size_t reversed = 0;
        for (int bit = 0; bit < n_bits; ++bit) reversed |= (i >> bit & 1) << (n_bits - 1 - bit);
        if (reversed < n) order.push_back(reversed);
    }
    return order;
}

void take(const std::vector<std::vector<TokenId>>& from, int64_t tokens_max, std::vector<std::vector<TokenId>>& out) {
    if (from.empty() || tokens_max <= 0) return;
    int64_t left = tokens_max;
    for (const size_t index : spread_order(from.size())) {
        if (left < static_cast<int64_t>(kSequenceTokensMin)) return;
        const std::vector<TokenId>& ids = from[index];
        const size_t n = std::min({ids.size(), kSequenceTokensMax, static_cast<size_t>(left)});
        out.emplace_back(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
        left -= static_cast<int64_t>(n);
    }
}

}  // namespace

int64_t TokenSet::row_begin(size_t sequence) const {
    int64_t rows = 0;
    for (size_t i = 0; i < sequence; ++i) rows += static_cast<int64_t>(sequences[i].size());
    return rows;
}

int64_t TokenSet::longest() const {
    size_t longest = 0;
    for (const auto& sequence : sequences) longest = std::max(longest, sequence.size());
    return static_cast<int64_t>(longest);
}

Result<TokenSet> read_token_set(std::string_view file, std::string_view name, const TextModel& model, const TextLimits& limits) {
    std::vector<std::vector<TokenId>> all;
    // One array over several lines is not a file of lines.
    const auto whole = file.starts_with('[') ? text::parse_json_value(file, name) : Result<Value>(Value());
    if (whole && whole->as_list() != nullptr) TRY(add_record(*whole, name, model, limits.vocab, all));
    else TRY(add_lines(file, name, model, limits.vocab, all));
    TokenSet set;
    set.n_records = static_cast<int64_t>(all.size());
    std::erase_if(all, [](const auto& ids) { return ids.size() < kSequenceTokensMin; });
    if (all.empty()) return invalid_input(fmt::format("{}: no record with at least {} tokens", name, kSequenceTokensMin));

    std::vector<std::vector<TokenId>> calibration;
    std::vector<std::vector<TokenId>> held_out;
    const size_t every = std::min(kHeldOutEvery, all.size());
    for (size_t i = 0; i < all.size(); ++i) {
        const bool is_held_out = limits.heldout_tokens > 0 && all.size() > 1 && i % every == every - 1;
        (is_held_out ? held_out : calibration).push_back(std::move(all[i]));
    }
    take(calibration, limits.calibration_tokens, set.sequences);
    set.n_calibration = set.sequences.size();
    take(held_out.empty() ? calibration : held_out, limits.heldout_tokens, set.sequences);
    return set;
}

}  // namespace espalier::quant
