#include "server/chat_completions_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/chat_messages.h"

namespace espalier::server {
namespace {

struct KnownButUnserved {
    const char* name;
    const char* why;
};

constexpr KnownButUnserved kUnserved[] = {
    {"audio", "audio output is not supported"},
    {"chat_template", "templates are chosen by the server's --chat-template, not by the request"},
    {"function_call", "the deprecated functions interface is not supported; use tool_choice"},
    {"functions", "the deprecated functions interface is not supported; use tools"},
    {"grammar", "constrained decoding is not supported"},
    {"guided_choice", "constrained decoding is not supported"},
    {"guided_grammar", "constrained decoding is not supported"},
    {"guided_json", "constrained decoding is not supported"},
    {"guided_regex", "constrained decoding is not supported"},
    {"json_schema", "constrained decoding is not supported"},
    {"structured_outputs", "constrained decoding is not supported"},
    {"prediction", "predicted outputs are not supported"},
    {"web_search_options", "web search is not supported"},
};

bool is_usable_tool_name(std::string_view name) {
    if (name.empty() || name.size() > 256) return false;
    return std::none_of(name.begin(), name.end(),
                        [](char c) { return c == '<' || c == '>' || static_cast<unsigned char>(c) < 0x20; });
}

// One entry of tools, kept as sent. Kinds other than functions are skipped with a warning: agents list tools of their
// provider beside their own, and refusing them refuses the agent.
void read_tool(const text::Value& value, const std::string& path, ReadState& state, std::vector<text::Value>& out) {
    if (value.as_dict() == nullptr) {
        return state.fail(bad_value(path, fmt::format("{}: expected an object, found {}", path, kind_of(value))));
    }
    const text::Value* type = value.find("type");
    const text::Value* function = value.find("function");
    if (type != nullptr && type->as_string() != nullptr && *type->as_string() != "function") {
        state.unknown_fields.push_back("tools[].type=" + *type->as_string());
        return;
    }
    text::Value tool = value;
    if (function == nullptr && value.find("name") != nullptr) {
        tool = text::Value(text::ValueDict{{"type", text::Value("function")}, {"function", value}});  // flat form
        function = tool.find("function");
    }
    if (function == nullptr || function->as_dict() == nullptr) {
        return state.fail(bad_value(path + ".function", path + ".function: expected an object with a name"));
    }
    const text::Value* name = function->find("name");
    if (name == nullptr || name->as_string() == nullptr || !is_usable_tool_name(*name->as_string())) {
        return state.fail(
            bad_value(path + ".function.name",
                      path + ".function.name: expected a string of 1 to 256 bytes without '<', '>' or control characters"));
    }
    out.push_back(std::move(tool));
}

void read_tools(FieldReader& reader, const ServerLimits& limits, ReadState& state, std::vector<text::Value>& out) {
    const text::ValueList* tools = reader.list("tools");
    if (tools == nullptr) return;
    if (static_cast<int>(tools->size()) > limits.tools) {
        return state.fail(bad_value("tools", fmt::format("tools: {} entries, the limit is {}", tools->size(), limits.tools)));
    }
    for (size_t i = 0; i < tools->size(); ++i) read_tool((*tools)[i], fmt::format("tools[{}]", i), state, out);
}

const std::string* tool_name(const text::Value& tool) {
    return tool.find("function")->find("name")->as_string();
}

void force_named_call(FieldReader& reader, const text::Value& choice, ReadState& state, ChatCompletionsRequest& out) {
    const text::Value* function = choice.find("function");
    const text::Value* name = (function != nullptr ? *function : choice).find("name");
    const text::Value* type = choice.find("type");
    const bool is_function = type == nullptr || (type->as_string() != nullptr && *type->as_string() == "function");
    if (!is_function || name == nullptr || name->as_string() == nullptr) {
        return state.fail(bad_value("tool_choice",
                                    "tool_choice: expected \"auto\", \"none\", \"required\" or "
                                    "{\"type\": \"function\", \"function\": {\"name\": …}}"));
    }
    const auto& tools = out.chat.tools;
    if (std::none_of(tools.begin(), tools.end(), [&](const auto& tool) { return *tool_name(tool) == *name->as_string(); })) {
        return state.fail(
            bad_value(reader.path("tool_choice"), fmt::format("tool_choice: no tool is named \"{}\"", *name->as_string())));
    }
    out.forced_call = *name->as_string();
}

void read_tool_choice(FieldReader& reader, ReadState& state, ChatCompletionsRequest& out) {
    const text::Value* choice = reader.get("tool_choice");
    if (choice == nullptr) return;
    if (choice->as_dict() != nullptr) return force_named_call(reader, *choice, state, out);
    if (choice->as_string() == nullptr) return reader.wrong_type("tool_choice", "a string or an object", *choice);
    const std::string& text = *choice->as_string();
    if (text == "auto") return;
    if (text == "none") return out.chat.tools.clear();  // neither offered nor parsed
    if (text != "required" && text != "any") {
        return state.fail(bad_value("tool_choice", fmt::format("tool_choice: unknown value \"{}\"", text)));
    }
    if (out.chat.tools.empty())
        return state.fail(bad_value("tool_choice", "tool_choice: a call is required, but there are no tools"));
    out.forced_call = out.chat.tools.size() == 1 ? *tool_name(out.chat.tools[0]) : "";
}

void read_thinking(FieldReader& reader, ReadState& state, text::Thinking default_thinking, text::ChatRequest& out) {
    std::string effort;
    if (reader.string("reasoning_effort", effort)) {
        constexpr std::array kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
        if (std::find(kEfforts.begin(), kEfforts.end(), effort) == kEfforts.end()) {
            return state.fail(bad_value("reasoning_effort", fmt::format("reasoning_effort: unknown value \"{}\"", effort)));
        }
        out.thinking = effort == "none" || effort == "minimal" ? text::Thinking::off : text::Thinking::on;
    }
    bool enabled = false;
    if (reader.boolean("enable_thinking", enabled)) out.thinking = enabled ? text::Thinking::on : text::Thinking::off;
    if (const text::ValueDict* dict = reader.dict("chat_template_kwargs")) {
        FieldReader kwargs(*dict, "chat_template_kwargs", state);
        if (kwargs.boolean("enable_thinking", enabled)) out.thinking = enabled ? text::Thinking::on : text::Thinking::off;
        for (const auto& [key, value] : *dict) {
            if (key == "enable_thinking") continue;
            if (key == "messages" || key == "tools" || key == "add_generation_prompt") {
                return state.fail(
                    bad_value("chat_template_kwargs." + key, fmt::format("chat_template_kwargs.{}: reserved name", key)));
            }
            out.template_kwargs.emplace_back(key, value);
        }
    }
    if (out.thinking == text::Thinking::unspecified) out.thinking = default_thinking;
}

void read_response_format(FieldReader& reader, ReadState& state) {
    const text::ValueDict* dict = reader.dict("response_format");
    if (dict == nullptr) return;
    const text::Value* type = reader.get("response_format")->find("type");
    if (type != nullptr && type->as_string() != nullptr && *type->as_string() == "text") return;
    state.fail(unsupported_parameter("response_format",
                                     "response_format: only {\"type\": \"text\"} is supported, constrained "
                                     "decoding is not"));
}

void read_modalities(FieldReader& reader, ReadState& state) {
    const text::ValueList* list = reader.list("modalities");
    if (list == nullptr) return;
    for (const text::Value& entry : *list) {
        if (entry.as_string() == nullptr || *entry.as_string() != "text") {
            state.fail(unsupported_parameter("modalities", "modalities: only \"text\" is supported"));
        }
    }
}

void read_logprobs(FieldReader& reader, ReadState& state, engine::SamplingParams& out) {
    bool wanted = false;
    int64_t top = 0;
    reader.boolean("logprobs", wanted);
    const bool has_top = reader.integer("top_logprobs", 0, 20, top);
    if (has_top && top > 0 && !wanted) state.fail(bad_value("top_logprobs", "top_logprobs: needs \"logprobs\": true"));
    if (wanted) out.n_logprobs = static_cast<int32_t>(top);
}

}  // namespace

std::optional<ApiError> parse_chat_completions(std::string_view body, const ServerLimits& limits,
                                               const SamplingDefaults& defaults, text::Thinking default_thinking,
                                               ChatCompletionsRequest& out) {
    text::Value root;
    if (std::optional<ApiError> error = parse_body(body, limits, root)) return error;
    ReadState state;
    FieldReader reader(*root.as_dict(), "", state);
    read_request_fields(reader, limits, defaults, state, out.fields);
    for (const KnownButUnserved& field : kUnserved) reader.unsupported(field.name, field.why);
    read_messages(reader, limits, state, out.chat.messages);
    read_tools(reader, limits, state, out.chat.tools);
    if (!state.error) read_tool_choice(reader, state, out);
    read_thinking(reader, state, default_thinking, out.chat);
    read_response_format(reader, state);
    read_modalities(reader, state);
    read_logprobs(reader, state, out.fields.sampling);
    reader.boolean("add_generation_prompt", out.chat.add_generation_prompt);
    reader.boolean("continue_final_message", out.chat.continue_final_message);
    if (out.chat.continue_final_message) out.chat.add_generation_prompt = false;
    bool parallel = true;
    if (reader.boolean("parallel_tool_calls", parallel) && !parallel) out.parallel_calls = ParallelCalls::first_only;
    reader.ignore({"reasoning_format", "parse_tool_calls", "verbosity", "include_reasoning"});
    reader.finish();
    out.unknown_fields = std::move(state.unknown_fields);
    return std::move(state.error);
}

}  // namespace espalier::server
