#include "text/chat_history.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace espalier::text {
namespace {

// Headers that agents put into the system prompt for their own server, one value or more of which differ in each request.
constexpr std::string_view kVolatileHeaders[] = {"x-anthropic-billing-header:"};

bool is_system(const ChatMessage& message) {
    return message.role == "system" || message.role == "developer";
}

bool is_field_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-+/").find(c) != std::string_view::npos;
}

// The end of the fields " name=value;" that begin at `at`, and of the line break after them. Other text may follow on the same
// line, because text blocks are joined without a separator.
size_t end_of_fields(std::string_view text, size_t at) {
    for (;;) {
        size_t i = at;
        while (i < text.size() && (text[i] == ' ' || text[i] == '\t')) ++i;
        const size_t name = i;
        while (i < text.size() && is_field_character(text[i])) ++i;
        if (i == name || i >= text.size() || text[i] != '=') break;
        ++i;
        while (i < text.size() && is_field_character(text[i])) ++i;
        at = i;
        if (i >= text.size() || text[i] != ';') break;
        at = i + 1;
    }
    if (text.substr(at, 2) == "\r\n") return at + 2;
    return at < text.size() && text[at] == '\n' ? at + 1 : at;
}

Value call_value(const ToolCallMessage& call, HistoryRepairs& repairs) {
    ValueDict function = {{"name", Value(call.name)}, {"arguments", arguments_object(call.arguments, repairs)}};
    ValueDict value;
    if (!call.id.empty()) value.emplace_back("id", Value(call.id));
    value.emplace_back("type", Value("function"));
    value.emplace_back("function", Value(std::move(function)));
    return Value(std::move(value));
}

Value message_value(const ChatMessage& message, std::string_view role, std::string content, HistoryRepairs& repairs) {
    ValueDict value;
    value.emplace_back("role", Value(role));
    value.emplace_back("content", Value(std::move(content)));
    if (message.reasoning_content) value.emplace_back("reasoning_content", Value(*message.reasoning_content));
    if (!message.tool_calls.empty()) {
        ValueList calls;
        for (const ToolCallMessage& call : message.tool_calls) calls.push_back(call_value(call, repairs));
        value.emplace_back("tool_calls", Value(std::move(calls)));
    }
    if (!message.tool_call_id.empty()) value.emplace_back("tool_call_id", Value(message.tool_call_id));
    if (!message.name.empty()) value.emplace_back("name", Value(message.name));
    return Value(std::move(value));
}

Value plain_message(std::string_view role, std::string content) {
    return Value(ValueDict{{"role", Value(role)}, {"content", Value(std::move(content))}});
}

}  // namespace

std::string without_volatile_headers(std::string_view text, HistoryRepairs& repairs) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const auto* const header = std::find_if(std::begin(kVolatileHeaders), std::end(kVolatileHeaders),
                                                [&](std::string_view name) { return text.substr(at, name.size()) == name; });
        if (header != std::end(kVolatileHeaders)) {
            at = end_of_fields(text, at + header->size());
            ++repairs.volatile_lines_blanked;
        }
        const size_t line_end = std::min(text.find('\n', at), text.size() - 1) + 1;
        out += text.substr(at, line_end - at);
        at = std::max(at, line_end);
    }
    return out;
}

Value arguments_object(std::string_view arguments, HistoryRepairs& repairs) {
    const std::string_view trimmed = jinja::strip(arguments, nullptr, jinja::Side::both);
    if (trimmed.empty() || trimmed == "null") return Value(ValueDict{});
    auto parsed = parse_json_value(trimmed, "arguments");
    if (parsed && parsed->as_dict() != nullptr) return *parsed;
    ++repairs.arguments_wrapped;
    if (parsed && parsed->as_string() != nullptr) {
        auto inner = parse_json_value(*parsed->as_string(), "arguments");
        if (inner && inner->as_dict() != nullptr) return *inner;
    }
    return Value(ValueDict{{"raw_arguments", Value(arguments)}});
}

bool has_user_query(const std::vector<ChatMessage>& messages) {
    return std::any_of(messages.begin(), messages.end(), [](const ChatMessage& message) {
        if (message.role != "user") return false;
        const std::string_view content =
            jinja::strip(message.content ? std::string_view(*message.content) : "", nullptr, jinja::Side::both);
        return !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>"));
    });
}

ValueList build_messages(const ChatRequest& request, HistoryLevel level, HistoryRepairs& repairs) {
    ValueList out;
    std::string leading_system;
    size_t i = 0;
    const std::vector<ChatMessage>& messages = request.messages;
    const auto content_of = [&](const ChatMessage& message) {
        const std::string content = message.content.value_or("");
        return is_system(message) ? without_volatile_headers(content, repairs) : content;
    };
    if (level != HistoryLevel::as_sent) {
        for (; i < messages.size() && is_system(messages[i]); ++i) {
            const std::string content = content_of(messages[i]);
            if (i > 0) ++repairs.system_messages_moved;
            if (!content.empty() && !leading_system.empty()) leading_system += "\n\n";
            leading_system += content;
        }
        if (i > 0) out.push_back(plain_message("system", leading_system));
    }
    bool is_query_late = false;
    for (size_t k = i; level != HistoryLevel::as_sent && k < messages.size(); ++k)
        is_query_late = is_query_late || is_system(messages[k]);
    if (level == HistoryLevel::user_query && !has_user_query(messages) && !is_query_late) {
        out.push_back(plain_message("user", ""));
        ++repairs.user_message_added;
    }
    for (; i < messages.size(); ++i) {
        const ChatMessage& message = messages[i];
        std::string_view role = message.role;
        if (is_system(message)) {
            const bool is_moved = level != HistoryLevel::as_sent;
            role = is_moved ? "user" : "system";
            repairs.system_messages_moved += is_moved ? 1 : 0;
        }
        out.push_back(message_value(message, role, content_of(message), repairs));
    }
    return out;
}

}  // namespace espalier::text
