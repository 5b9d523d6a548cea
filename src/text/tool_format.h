// A tool format is one value: how a model opens, names, argues and closes a call. The streaming parser, the template
// automaton of decode/ and later the grammar all read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_value.h"

namespace espalier::text {

enum class ToolSyntax {
    none,         // the model has no tool calls: everything is content
    qwen_xml,     // <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
    hermes_json,  // <tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>
    llama3_json,  // {"name": …, "parameters": {…}}
};

struct ToolFormat {
    std::string_view name;  // "qwen-xml", …: as flags and /props spell it
    ToolSyntax syntax = ToolSyntax::none;
    std::string_view call_open;
    std::string_view call_close;
    std::string_view think_open = "<think>";
    std::string_view think_close = "</think>";
};

// All known formats, a constant table.
const std::vector<ToolFormat>& tool_formats();
// By name; nullptr if unknown.
const ToolFormat* find_tool_format(std::string_view name);
// Chosen from the template's own text.
const ToolFormat& detect_tool_format(std::string_view template_source);

}  // namespace espalier::text
