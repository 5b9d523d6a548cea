#include "text/tool_format.h"

namespace espalier::text {

const std::vector<ToolFormat>& tool_formats() {
    static const std::vector<ToolFormat> formats = {
        {"qwen-xml", ToolSyntax::qwen_xml, "<tool_call>", "</tool_call>"},
        {"hermes-json", ToolSyntax::hermes_json, "<tool_call>", "</tool_call>"},
        // The marker precedes calls of built-in tools only; user-defined calls come as bare JSON. Nothing closes a call.
        {"llama3-json", ToolSyntax::llama3_json, "<|python_tag|>", ""},
        {"none", ToolSyntax::none, "", ""},
    };
    return formats;
}

const ToolFormat* find_tool_format(std::string_view name) {
    for (const ToolFormat& format : tool_formats()) {
        if (format.name == name) return &format;
    }
    return nullptr;
}

// A template that knows tools prints an example of its own call syntax (instructions) or writes past calls in it (history);
// either holds the opening tag. Qwen XML templates also mention <tool_call>, so the narrower sign is looked for first.
const ToolFormat& detect_tool_format(std::string_view template_source) {
    const auto has = [&](std::string_view part) { return template_source.find(part) != std::string_view::npos; };
    std::string_view name = "none";
    if (has("<function=") && has("<parameter=")) {
        name = "qwen-xml";
    } else if (has("<tool_call>")) {
        name = "hermes-json";
    } else if (has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\""))) {
        name = "llama3-json";
    }
    return *find_tool_format(name);
}

}  // namespace espalier::text
