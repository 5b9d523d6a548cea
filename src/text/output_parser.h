// Streaming parser of model output: reasoning, content and tool calls, as one incremental state machine. The result does
// not depend on how the text is cut into pieces. House rules: docs/tool-calls.md.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_value.h"
#include "text/tool_format.h"

namespace espalier::text {

// Where the prompt left the model: after a closed think block, or inside an open one.
enum class PromptState { no_think, think_open };
enum class StopCause { eos, length };

struct OutputDelta {
    enum class Kind {
        reasoning,       // text
        content,         // text
        call_begin,      // call_index, call_name
        call_arguments,  // call_index, text = a piece of the JSON arguments
        call_end,        // call_index
    };
    Kind kind = Kind::content;
    int call_index = -1;
    std::string call_name;
    std::string text;
};

struct ParsedCall {
    std::string name;
    std::string arguments;  // JSON text; unterminated if the output was cut
    bool is_complete = false;
};

struct ParsedOutput {
    std::string content;  // empty = null
    std::string reasoning;
    std::vector<ParsedCall> calls;
    std::string finish_reason;  // "stop", "tool_calls", "length"
};

// Where the input bytes went: input = content + reasoning + arguments + framing + repaired. `input` counts text after broken
// UTF-8 became U+FFFD; `arguments` counts the input bytes of values, not the JSON that was written.
struct ByteAccount {
    size_t input = 0;
    size_t content = 0;
    size_t reasoning = 0;
    size_t arguments = 0;
    size_t framing = 0;   // tags, names and white space around them
    size_t repaired = 0;  // dropped by a repair
};

class OutputParser {
public:
    // tools: the request's tools (each {"type": "function", "function": {…}}, or the inner object alone); none for tool_choice
    // "none": then nothing is parsed but reasoning. The format must outlive the parser.
    OutputParser(const ToolFormat& format, const std::vector<Value>& tools, PromptState state);
    ~OutputParser();
    OutputParser(OutputParser&&) noexcept;
    OutputParser& operator=(OutputParser&&) noexcept;

    // Feeds text. is_marker: this text is one added token of the model (a real "<tool_call>", not its spelling by ordinary
    // tokens); ordinary text never acts as a marker (MarkerScanner finds markers where the tokenizer has none). Appends what
    // became certain to `out`; neighbours of one kind within a push are one delta. A call that is cut gets no call_end.
    void push(std::string_view text, bool is_marker, std::vector<OutputDelta>& out);
    // The output ended. Appends the rest.
    void finish(StopCause cause, std::vector<OutputDelta>& out);

    // Everything so far, as a non-streaming answer shows it; complete after finish.
    const ParsedOutput& parsed() const;
    // Repairs by kind ("missing_parameter_close", …), for metrics.
    const std::map<std::string, int>& repairs() const;
    const ByteAccount& bytes() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::text
