// POST /v1/chat/completions: body -> neutral request -> prompt -> jobs -> a Generation that writes the reply.
#include <fmt/format.h>

#include <ctime>

#include "server/chat_completions_request.h"
#include "server/chat_completions_writer.h"
#include "server/generation.h"
#include "server/ids.h"
#include "server/submit.h"

namespace espalier::server {
namespace {

bool ends_with_open_think(const std::string& prompt, const text::ToolFormat& format) {
    const size_t end = prompt.find_last_not_of(" \t\r\n");
    return end != std::string::npos && !format.think_open.empty() &&
           std::string_view(prompt).substr(0, end + 1).ends_with(format.think_open);
}

// The beginning of a call, written for the model: it can then only go on with its arguments, or with its name where the
// request leaves the choice.
std::vector<TextRun> call_head(const text::ToolFormat& format, const std::string& name, text::PromptState state) {
    std::vector<TextRun> runs;
    if (state == text::PromptState::think_open) {
        runs.push_back({std::string(format.think_close), RunKind::marker});
        runs.push_back({"\n\n", RunKind::text});
    }
    runs.push_back({std::string(format.call_open), RunKind::marker});
    runs.push_back({name.empty() ? "\n<function=" : "\n<function=" + name + ">\n", RunKind::text});
    return runs;
}

std::string repairs_log_fields(const text::HistoryRepairs& repairs, Metrics& metrics) {
    const std::pair<const char*, int> kinds[] = {{"history_arguments_wrapped", repairs.arguments_wrapped},
                                                 {"history_system_moved", repairs.system_messages_moved},
                                                 {"history_user_added", repairs.user_message_added},
                                                 {"history_volatile_blanked", repairs.volatile_lines_blanked}};
    std::string out;
    for (const auto& [kind, n] : kinds) {
        metrics.count_repair(kind, n);
        if (n > 0) out += fmt::format(" {}={}", kind, n);
    }
    return out;
}

}  // namespace

Outcome handle_chat_completions(Service& service, const HandlerContext& context, const HttpRequest& request) {
    const ServerOptions& options = service.options();
    ChatCompletionsRequest body;
    if (auto error = parse_chat_completions(request.body, options.limits, context->sampling, context->thinking, body)) {
        return error_response(*error);
    }
    service.warn_unknown_fields(request.path, body.unknown_fields);
    if (auto error = check_model(*context, body.fields.model)) return error_response(*error);
    if (!context->chat_template) {
        return error_response(unsupported_parameter("messages", "this model has no chat template; use /v1/completions"));
    }
    const text::ToolFormat& format = context->tool_format;
    if (body.forced_call && format.syntax != text::ToolSyntax::qwen_xml) {
        return error_response(unsupported_parameter(
            "tool_choice",
            fmt::format("tool_choice: required and named calls are not supported with tool format \"{}\"", format.name)));
    }
    Result<text::RenderedPrompt> rendered = text::render_chat(*context->chat_template, *context->tokenizer, body.chat);
    if (!rendered) return error_response(render_error(rendered.error()));

    GenerationPlan plan;
    plan.log_fields = repairs_log_fields(rendered->repairs, service.metrics());
    const auto state = ends_with_open_think(rendered->text, format) ? text::PromptState::think_open : text::PromptState::no_think;
    if (body.forced_call) {
        plan.forced_head = call_head(format, *body.forced_call, state);
        std::string head;
        for (const TextRun& run : plan.forced_head) head += run.text;
        const std::vector<text::TokenId> ids = context->tokenizer->encode(head);
        rendered->ids.insert(rendered->ids.end(), ids.begin(), ids.end());
    }
    identify_client(options, request, body.fields);
    body.fields.tools = text::outline_tools(body.chat.tools);
    plan.log_fields +=
        fmt::format(" prepare_ms={:.1f}", std::chrono::duration<double, std::milli>(Clock::now() - request.received).count());
    if (auto error = submit_jobs(*context, body.fields, std::move(rendered->ids), rendered->stable_boundaries, plan.streams)) {
        return error_response(*error);
    }
    for (int i = 0; i < body.fields.n_choices; ++i) {
        plan.decoders.emplace_back(*context->tokenizer, body.fields.stops, format, body.chat.tools, state);
    }
    const ReplyHead head{new_id("chatcmpl-"), context->alias, "espalier-" + options.version, std::time(nullptr)};
    plan.writer = std::make_unique<ChatCompletionsWriter>(head, body.fields, *context->tokenizer);
    plan.context = context;
    plan.mode = body.fields.is_stream ? ReplyMode::stream : ReplyMode::whole;
    plan.parallel_calls = body.parallel_calls;
    plan.unsent_bytes_max = options.limits.unsent_bytes;
    plan.received = request.received;
    return std::make_unique<Generation>(std::move(plan), service.metrics(), service.log());
}

Outcome handle_apply_template(Service& service, const HandlerContext& context, const HttpRequest& request) {
    ChatCompletionsRequest body;
    if (auto error = parse_chat_completions(request.body, service.options().limits, context->sampling, context->thinking, body)) {
        return error_response(*error);
    }
    if (!context->chat_template) return error_response(unsupported_parameter("messages", "this model has no chat template"));
    Result<std::string> prompt = text::render_chat_text(*context->chat_template, body.chat);
    if (!prompt) return error_response(render_error(prompt.error()));
    HttpResponse response;
    response.body = dump_json({{"prompt", *prompt}});
    return response;
}

}  // namespace espalier::server
