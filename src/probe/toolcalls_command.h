// `espalier eval toolcalls`: recorded model outputs in, what the output parser makes of them out, one JSON object a line. Blank
// lines are skipped.
#pragma once

#include <iosfwd>
#include <string>

#include "base/result.h"

namespace espalier::probe {

struct ToolcallsOptions {
    std::string format = "qwen-xml";  // a name of text::tool_formats()
    // How the text is cut: "whole", "bytes" (every byte alone), "halves" (once for every way to cut it in two) or "seed:N"
    // (random pieces of 1 to 12 bytes). However it is cut, every literal marker counts as a marker token.
    std::string split = "whole";
};

// {"id", "model_output", "tools", "tool_choice", "prompt_state": "no_think" | "think_open", "stop_cause": "eos" | "length"} ->
// {"id", "content", "tool_calls": [{"name", "arguments": object | "arguments_raw": text}], "reasoning", "finish_reason"};
// all but model_output may be left out. arguments_raw: the call was cut, or its arguments are no object.
// Errors: invalid_input with the line number; the lines before it are written. With "halves": internal if two cuts disagree.
Status run_toolcalls(const ToolcallsOptions& options, std::istream& in, std::ostream& out);

}  // namespace espalier::probe
