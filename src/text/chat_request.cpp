#include "text/chat_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/chat_history.h"
#include "text/jinja/unicode.h"
#include "text/prompt_boundaries.h"

namespace espalier::text {
namespace {

enum class GenerationPrompt { no, yes };

Value build_context(const ChatRequest& request, ValueList messages, GenerationPrompt prompt) {
    ValueDict context = {{"messages", Value(std::move(messages))},
                         {"tools", request.tools.empty() ? Value::none() : Value(ValueList(request.tools))},
                         {"documents", Value::none()},
                         {"add_generation_prompt", Value(prompt == GenerationPrompt::yes)}};
    if (request.thinking != Thinking::unspecified)
        context.emplace_back("enable_thinking", Value(request.thinking == Thinking::on));
    for (const auto& [name, value] : request.template_kwargs) {
        const bool is_set =
            std::any_of(context.begin(), context.end(), [&name = name](const auto& entry) { return entry.first == name; });
        if (!is_set) context.emplace_back(name, value);
    }
    return Value(std::move(context));
}

Result<std::string> render_at(const ChatTemplate& chat_template, const ChatRequest& request, HistoryLevel level,
                              HistoryRepairs& repairs) {
    const auto prompt = request.add_generation_prompt ? GenerationPrompt::yes : GenerationPrompt::no;
    return chat_template.render(build_context(request, build_messages(request, level, repairs), prompt));
}

struct RenderedHistory {
    std::string text;
    HistoryLevel level = HistoryLevel::as_sent;
    HistoryRepairs repairs;
};

// The mildest repair that the template accepts. If none helps, the error of the history as it was sent: it names what the client
// did, not what became of it.
Result<RenderedHistory> render_history(const ChatTemplate& chat_template, const ChatRequest& request) {
    Error first;
    for (const HistoryLevel level : {HistoryLevel::as_sent, HistoryLevel::system_first, HistoryLevel::user_query}) {
        RenderedHistory history;
        history.level = level;
        auto text = render_at(chat_template, request, level, history.repairs);
        if (text) {
            history.text = *std::move(text);
            return history;
        }
        if (level == HistoryLevel::as_sent) first = text.error();
        if (text.error().code != ErrorCode::invalid_input) break;
    }
    return first;
}

// The text up to the end of the last message's content, which the model goes on writing.
Result<RenderedHistory> render_continued(const ChatTemplate& chat_template, ChatRequest request) {
    if (request.messages.empty() || request.messages.back().role != "assistant") {
        return invalid_input("continue_final_message: the last message must be the assistant's");
    }
    const std::string content = request.messages.back().content.value_or("");
    const std::string_view trimmed = jinja::strip(content, nullptr, jinja::Side::both);
    if (trimmed.empty()) return invalid_input("continue_final_message: the last message has no text to continue");
    request.add_generation_prompt = false;
    TRY_ASSIGN(RenderedHistory history, render_history(chat_template, request));
    const size_t at = history.text.rfind(trimmed);
    if (at == std::string::npos)
        return invalid_input("continue_final_message: the chat template does not show the last message's text");
    const std::string_view to_end = jinja::strip(content, nullptr, jinja::Side::left);
    const bool keeps_trailing_space = std::string_view(history.text).substr(at, to_end.size()) == to_end;
    history.text.resize(at + (keeps_trailing_space ? to_end.size() : trimmed.size()));
    return history;
}

Result<RenderedHistory> render_request(const ChatTemplate& chat_template, const ChatRequest& request) {
    return request.continue_final_message ? render_continued(chat_template, request) : render_history(chat_template, request);
}

struct PossibleNext {
    ChatRequest request;
    StableBoundary::Follower follower;
};

// What the next request of this conversation may look like. Clients send the reasoning of a reply back or leave it out, and the
// prompt's open think block then goes on differently. With a user message behind it, templates drop the reasoning anyway.
std::vector<PossibleNext> possible_next_requests(const ChatRequest& request) {
    ChatMessage reply;
    reply.role = "assistant";
    reply.content = "r";
    reply.reasoning_content = "r";
    ChatMessage question;
    question.role = "user";
    question.content = "q";
    ChatRequest after_user = request;
    after_user.continue_final_message = false;
    ChatRequest after_tool = after_user;
    after_user.messages.push_back(reply);
    after_user.messages.push_back(question);

    reply.content.reset();
    reply.tool_calls.push_back({"call_0", "f", "{}"});
    ChatMessage result;
    result.role = "tool";
    result.content = "t";
    result.tool_call_id = "call_0";
    ChatRequest without_reasoning = after_tool;
    after_tool.messages.push_back(reply);
    after_tool.messages.push_back(result);
    reply.reasoning_content.reset();
    without_reasoning.messages.push_back(reply);
    without_reasoning.messages.push_back(result);
    std::vector<PossibleNext> next;
    next.push_back({std::move(after_user), StableBoundary::Follower::user});
    next.push_back({std::move(after_tool), StableBoundary::Follower::tool});
    next.push_back({std::move(without_reasoning), StableBoundary::Follower::tool});
    return next;
}

}  // namespace

Result<std::string> render_chat_text(const ChatTemplate& chat_template, const ChatRequest& request, HistoryRepairs* repairs) {
    TRY_ASSIGN(RenderedHistory history, render_request(chat_template, request));
    if (repairs != nullptr) *repairs = history.repairs;
    return std::move(history.text);
}

Result<RenderedPrompt> render_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const ChatRequest& request) {
    TRY_ASSIGN(RenderedHistory history, render_request(chat_template, request));
    RenderedPrompt prompt;
    prompt.text = std::move(history.text);
    prompt.repairs = history.repairs;
    prompt.ids = encode_prompt(tokenizer, prompt.text);
    auto& boundaries = prompt.stable_boundaries;
    for (const PossibleNext& next : possible_next_requests(request)) {
        HistoryRepairs ignored;
        const auto text = render_at(chat_template, next.request, history.level, ignored);
        if (!text) continue;
        const int32_t tokens = common_token_prefix(tokenizer, prompt.text, prompt.ids, *text);
        if (tokens > 0) boundaries.push_back({tokens, next.follower});
    }
    std::stable_sort(boundaries.begin(), boundaries.end(),
                     [](const StableBoundary& a, const StableBoundary& b) { return a.tokens < b.tokens; });
    boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
    return prompt;
}

}  // namespace espalier::text
