#include "server/chat_messages.h"

#include <fmt/format.h>

namespace espalier::server {
namespace {

// One part of a content array.
void read_part(const text::Value& part, const std::string& path, ReadState& state, std::string& out) {
    if (part.as_string() != nullptr) {
        out += *part.as_string();
        return;
    }
    if (part.as_dict() == nullptr) {
        return state.fail(bad_value(path, fmt::format("{}: expected an object, found {}", path, kind_of(part))));
    }
    const text::Value* type = part.find("type");
    const std::string kind = type != nullptr && type->as_string() != nullptr ? *type->as_string() : "";
    const bool is_refusal = kind == "refusal";
    if (kind != "text" && kind != "input_text" && kind != "output_text" && !is_refusal) {
        return state.fail(unsupported_parameter(
            path, fmt::format("{}: content parts of type \"{}\" are not supported, this server reads text only", path, kind)));
    }
    const text::Value* text = part.find(is_refusal ? "refusal" : "text");
    if (text == nullptr || text->as_string() == nullptr) {
        return state.fail(bad_value(path + ".text", fmt::format("{}.text: expected a string", path)));
    }
    out += *text->as_string();
}

void read_content(FieldReader& reader, ReadState& state, std::optional<std::string>& out) {
    const text::Value* content = reader.get("content");
    if (content == nullptr) return;
    if (content->as_string() != nullptr) {
        out = *content->as_string();
        return;
    }
    if (content->as_list() == nullptr) return reader.wrong_type("content", "a string or an array of parts", *content);
    out.emplace();
    for (size_t i = 0; i < content->as_list()->size(); ++i) {
        read_part((*content->as_list())[i], fmt::format("{}[{}]", reader.path("content"), i), state, *out);
    }
}

// {"name", "arguments"}: arguments are JSON text; objects are accepted and written back as text.
void read_function(FieldReader& function, ReadState& state, text::ToolCallMessage& call) {
    function.string("name", call.name);
    if (call.name.empty())
        state.fail(bad_value(function.path("name"), fmt::format("{}: expected a string", function.path("name"))));
    const text::Value* arguments = function.get("arguments");
    if (arguments == nullptr) return;
    if (arguments->as_string() != nullptr) {
        call.arguments = *arguments->as_string();
    } else if (arguments->as_dict() != nullptr) {
        Result<std::string> text = text::to_json_text(*arguments);
        if (text) {
            call.arguments = *std::move(text);
        } else {
            state.fail(api_error_from(text.error()));
        }
    } else {
        function.wrong_type("arguments", "a string of JSON text", *arguments);
    }
    function.finish();
}

void read_tool_calls(FieldReader& message, ReadState& state, std::vector<text::ToolCallMessage>& out) {
    if (const text::ValueList* calls = message.list("tool_calls")) {
        for (size_t i = 0; i < calls->size(); ++i) {
            const std::string path = fmt::format("{}[{}]", message.path("tool_calls"), i);
            const text::Value& entry = (*calls)[i];
            if (entry.as_dict() == nullptr) {
                return state.fail(bad_value(path, fmt::format("{}: expected an object, found {}", path, kind_of(entry))));
            }
            FieldReader reader(*entry.as_dict(), path, state);
            text::ToolCallMessage call;
            reader.string("id", call.id);
            reader.ignore({"type", "index"});
            const text::ValueDict* function = reader.dict("function");
            if (function == nullptr) {
                return state.fail(bad_value(path + ".function", fmt::format("{}.function: expected an object", path)));
            }
            FieldReader function_reader(*function, path + ".function", state);
            read_function(function_reader, state, call);
            reader.finish();
            out.push_back(std::move(call));
        }
    }
    if (const text::ValueDict* legacy = message.dict("function_call")) {
        FieldReader function_reader(*legacy, message.path("function_call"), state);
        text::ToolCallMessage call;
        read_function(function_reader, state, call);
        out.push_back(std::move(call));
    }
}

void read_role(FieldReader& reader, ReadState& state, std::string& role) {
    reader.string("role", role);
    if (role == "function") role = "tool";
    for (const char* known : {"system", "developer", "user", "assistant", "tool"}) {
        if (role == known) return;
    }
    state.fail(bad_value(reader.path("role"), fmt::format("{}: expected system, developer, user, assistant or tool, found \"{}\"",
                                                          reader.path("role"), role)));
}

void read_message(const text::Value& value, const std::string& path, ReadState& state, text::ChatMessage& out) {
    if (value.as_dict() == nullptr) {
        return state.fail(bad_value(path, fmt::format("{}: expected an object, found {}", path, kind_of(value))));
    }
    FieldReader reader(*value.as_dict(), path, state);
    read_role(reader, state, out.role);
    read_content(reader, state, out.content);
    std::string reasoning;
    for (const char* name : {"reasoning", "reasoning_content"}) {
        if (reader.string(name, reasoning)) out.reasoning_content = reasoning;
    }
    read_tool_calls(reader, state, out.tool_calls);
    reader.string("tool_call_id", out.tool_call_id);
    reader.string("name", out.name);
    reader.ignore({"id", "refusal", "audio", "annotations", "cache_control", "status", "provider_specific_fields"});
    reader.finish();
}

}  // namespace

void read_messages(FieldReader& reader, const ServerLimits& limits, ReadState& state, std::vector<text::ChatMessage>& out) {
    const text::ValueList* messages = reader.list("messages");
    if (messages == nullptr || messages->empty()) {
        return state.fail(bad_value("messages", "messages: expected an array with at least one message"));
    }
    if (static_cast<int>(messages->size()) > limits.messages) {
        return state.fail(
            bad_value("messages", fmt::format("messages: {} entries, the limit is {}", messages->size(), limits.messages)));
    }
    out.resize(messages->size());
    for (size_t i = 0; i < messages->size() && !state.error; ++i) {
        read_message((*messages)[i], fmt::format("messages[{}]", i), state, out[i]);
    }
}

}  // namespace espalier::server
