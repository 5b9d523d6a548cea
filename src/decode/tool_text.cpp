#include "decode/tool_text.h"

#include <algorithm>

namespace espalier::decode {
namespace {

// Tokens of all chains at most: a request with a hundred tools has a few thousand.
constexpr size_t kTokensMax = 1 << 14;
// A parameter that is not among the first of a tool rarely comes first.
constexpr size_t kFirstParameters = 3;

}  // namespace

// The end of reply + path.
struct ToolText::Context {
    std::span<const TokenId> reply;
    std::span<const TokenId> path;
    size_t size() const { return reply.size() + path.size(); }
    TokenId operator[](size_t from_end) const {
        return from_end < path.size() ? path[path.size() - 1 - from_end] : reply[reply.size() - 1 - (from_end - path.size())];
    }
};

ToolText::ToolText(const text::Tokenizer& tokenizer, const text::ToolFormat& format, const std::vector<text::ToolOutline>& tools)
    : format_(format) {
    if (tools.empty() || format.call_open.empty()) return;
    call_open_ = tokenizer.added_token_id(format.call_open);
    call_close_ = tokenizer.added_token_id(format.call_close);
    if (call_open_ < 0) return;  // plain text in this vocabulary: the pieces around it are not known
    line_enders_.resize(static_cast<size_t>(tokenizer.vocab_size()));
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
        line_enders_[static_cast<size_t>(id)] = tokenizer.token_bytes(id).ends_with('\n');
    for (const text::ToolOutline& tool : tools) {
        if (format.syntax == text::ToolSyntax::qwen_xml) add_qwen_xml(tokenizer, tool);
        if (format.syntax == text::ToolSyntax::hermes_json) add_hermes_json(tokenizer, tool);
    }
    const std::string open(format.call_open);
    add(tokenizer, std::string(format.think_close) + "\n\n" + open, {{}, 1, Place::after_thought});
    if (!format.call_close.empty()) add(tokenizer, std::string(format.call_close) + "\n" + open, {{}, 1, Place::call_end});
}

void ToolText::add_qwen_xml(const text::Tokenizer& tokenizer, const text::ToolOutline& tool) {
    const std::string head = std::string(format_.call_open) + "\n<function=" + tool.name + ">\n";
    const std::string tail = "</function>\n" + std::string(format_.call_close);
    if (tool.parameters.empty()) return add(tokenizer, head + tail, {{}, 1, Place::call_head, true});
    for (size_t i = 0; i < std::min(tool.parameters.size(), kFirstParameters); ++i)
        add(tokenizer, head + "<parameter=" + tool.parameters[i] + ">\n", {{}, 1, Place::call_head, true});
    add(tokenizer, "\n</parameter>\n" + tail, {{}, 0, Place::call_tail, false, true});
    for (size_t i = 1; i < tool.parameters.size(); ++i)
        add(tokenizer, "\n</parameter>\n<parameter=" + tool.parameters[i] + ">\n", {{}, 0, Place::call_tail, false, true});
}

void ToolText::add_hermes_json(const text::Tokenizer& tokenizer, const text::ToolOutline& tool) {
    add(tokenizer, std::string(format_.call_open) + "\n{\"name\": \"" + tool.name + "\", \"arguments\": {",
        {{}, 1, Place::call_head, true});
}

void ToolText::add(const text::Tokenizer& tokenizer, const std::string& literal, Chain chain) {
    // With a letter before it, a line break at the beginning stands by itself; the rest does not depend on what was before.
    std::vector<TokenId> ids = tokenizer.encode(chain.follows_line ? "a" + literal : literal);
    if (chain.follows_line) {
        const auto line = std::find_if(ids.begin(), ids.end(), [this](TokenId id) { return ends_line(id); });
        if (line == ids.end() || tokenizer.decode({ids.begin(), line + 1}) != "a\n") return;
        ids.erase(ids.begin(), line + 1);
    }
    if (ids.empty()) return;
    const bool is_closed = tokenizer.is_added(ids.back()) || ends_line(ids.back());
    if (!is_closed) ids.pop_back();
    if (ids.size() <= chain.first || n_tokens_ + ids.size() > kTokensMax) return;
    chain.tokens = std::move(ids);
    const bool is_known = std::any_of(chains_.begin(), chains_.end(), [&](const Chain& other) {
        return other.tokens == chain.tokens && other.place == chain.place;
    });
    if (is_known) return;
    n_tokens_ += chain.tokens.size();
    chains_.push_back(std::move(chain));
}

bool ToolText::ends_line(TokenId token) const {
    return static_cast<size_t>(token) < line_enders_.size() && line_enders_[static_cast<size_t>(token)];
}

bool ToolText::is_in_call(const Context& context) const {
    for (size_t i = 0; i < context.size(); ++i) {
        if (context[i] == call_open_) return true;
        if (context[i] == call_close_) return false;
    }
    return false;
}

// The context ends in the chain's first `position` tokens.
bool ToolText::follows(const Chain& chain, size_t position, const Context& context) const {
    if (context.size() < position + (chain.follows_line ? 1 : 0)) return false;
    for (size_t i = 0; i < position; ++i) {
        if (context[i] != chain.tokens[position - 1 - i]) return false;
    }
    if (position == 0 && !chain.follows_line) return chain.starts_reply && context.size() == 0;
    return !chain.follows_line || (ends_line(context[position]) && (position > 0 || is_in_call(context)));
}

int32_t ToolText::candidates(std::span<const TokenId> reply, std::span<const TokenId> path, std::span<Candidate> out) const {
    const Context context{reply, path};
    size_t n = 0;
    for (const Chain& chain : chains_) {
        const size_t first = chain.starts_reply ? 0 : chain.first;
        // The longest beginning that the context ends in; a shorter one is an accident.
        size_t position = chain.tokens.size();
        do {
            --position;
        } while (position > first && !follows(chain, position, context));
        if (!follows(chain, position, context)) continue;
        const TokenId token = chain.tokens[position];
        const auto known = out.first(n);
        if (std::any_of(known.begin(), known.end(), [token](const Candidate& c) { return c.token == token; })) continue;
        if (n == out.size()) break;
        Place place = chain.place;
        if (position == 0) place = chain.follows_line ? Place::value_end : Place::reply_start;
        out[n++] = {token, place};
    }
    return static_cast<int32_t>(n);
}

}  // namespace espalier::decode
