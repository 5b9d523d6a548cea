// The state machine of the output parser. It reads one growing string of symbols (output_parser_symbols.h) and takes steps at
// its front; a step consumes something, changes the mode, or says that it needs more input. What a step decides holds for every
// continuation of the text it looked at, so the result cannot depend on where the text was cut; what it could not decide yet
// stays in the buffer: that is the whole hold-back (a tag, the white space before it, and the tag that must follow).
//
// Rejected: regular expressions over the finished text (cannot stream), and separate streaming and whole-text parsers (they
// drift apart). Cost: linear; a held piece is looked at again once per new symbol, except in white space, which is skipped.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/output_parser_fence.h"
#include "text/output_parser_json.h"
#include "text/output_parser_sink.h"
#include "text/output_parser_symbols.h"
#include "text/output_parser_tags.h"
#include "text/output_parser_tools.h"

namespace espalier::text {

class OutputMachine {
public:
    OutputMachine(const ToolFormat& format, const std::vector<Value>& tools, PromptState state);

    void feed(std::string_view symbols);
    void finish(StopCause cause);

    OutputSink& sink() { return sink_; }
    const OutputSink& sink() const { return sink_; }

private:
    enum class Mode {
        text,       // content or reasoning
        body,       // in a function, between parameters
        value,      // in a parameter
        json_body,  // in a JSON object that is the body of a function
        json_call,  // in a JSON object with name and arguments
    };
    enum class Step {
        advance,     // something was decided
        wait,        // undecided
        wait_space,  // undecided, and white space will not decide it
    };
    // What stands at a possible end of a value.
    struct Closing {
        enum class Kind {
            data,        // text of the value
            wait,        // as in Step
            wait_space,  // as in Step
            close,       // the value ends: n_symbols (line break and tag) are framing
            drop,        // the output ended inside a tag: n_symbols go
        } kind = Kind::data;
        size_t n_symbols = 0;
        const char* repair = nullptr;
    };

    void run();
    Step step();
    std::string_view rest() const { return std::string_view(buffer_).substr(pos_); }
    void take_framing(size_t n_symbols);
    void take_repair(size_t n_symbols, const char* kind);
    size_t n_text_bytes(std::string_view symbols) const;
    std::string expand(std::string_view symbols) const;

    // output_parser_text.cpp
    Step step_text();
    Step step_call_open();
    Step step_call_close();
    Step step_think_open();
    Step step_think_close();
    Step step_tag_in_text();
    Step step_separator();
    void emit_text(size_t n_symbols);
    void begin_call(const std::string& name, size_t n_symbols);
    void begin_function(const TagMatch& header);
    void begin_segment();
    Fit ends_line(size_t pos) const;
    bool may_call() const { return has_tools_ && !fence_.in_fence() && !fence_.opens_code(); }

    // output_parser_body.cpp
    Step step_body();
    Step step_tag_in_body();
    Step step_json_body();
    void close_json_body();
    void begin_parameter(const TagMatch& header, std::string close_tag);
    void end_call();
    void note_json_repairs();
    void write_last_arguments(std::string_view json);

    // output_parser_value.cpp
    Step step_value();
    Step step_value_begin();
    Closing closing_at(std::string_view view, size_t n_break) const;
    Closing closing_at_tag(std::string_view view, size_t n_break, bool is_line_start) const;
    Closing closing_by_tag(std::string_view view, size_t n_break) const;
    Closing closing_by_function(std::string_view view, size_t n_break) const;
    Closing closing_by_parameter(std::string_view view, size_t n_break) const;
    Closing closing_by_end(std::string_view view, size_t n_break, size_t pos) const;
    Closing closing_in_literal(std::string_view view, size_t n_break) const;
    Fit match_follower(std::string_view view, size_t pos) const;
    void take_value_text(size_t n_symbols);
    void write_value(std::string_view text);
    void write_key();
    void end_value();

    // output_parser_json_call.cpp
    Step begin_json_call(size_t n_before, bool is_wrapped);
    Step step_json_call();
    void take_json_symbols(size_t n_symbols, bool fits, bool is_argument);
    Step json_call_marker(char symbol);
    bool json_call_char(char c);
    bool json_key_char(char c);
    bool json_value_char(char c);
    bool json_value_ended();
    bool json_object_ended();
    bool confirm_json_call();
    Step reject_json_call();
    void end_json_call();
    void flush_json_arguments();

    const ToolFormat* format_;
    DeclaredTools tools_;
    bool has_tools_ = false;
    OutputSink sink_;
    std::string buffer_;
    size_t pos_ = 0;
    bool skips_space_ = false;  // the last step said wait_space
    bool is_at_end_ = false;
    StopCause cause_ = StopCause::eos;
    Mode mode_ = Mode::text;

    // Text.
    bool in_reasoning_ = false;
    FenceTracker fence_;
    bool expects_late_think_close_ = false;  // a call ended the reasoning
    bool is_after_call_ = false;             // only white space since the last call
    bool in_wrapper_ = false;                // <tool_call> without its </tool_call>
    bool is_plain_ = false;                  // the next symbol is text: it was looked at as a call already
    size_t n_rejected_ = 0;                  // symbols of JSON that is no call; none is looked for in it

    // The current call.
    const DeclaredTool* tool_ = nullptr;  // nullptr: not declared
    bool awaits_json_ = false;            // <function>NAME</function> was read
    bool has_json_body_ = false;
    std::set<std::string, std::less<>> used_keys_;
    bool in_stray_text_ = false;

    // The current value.
    std::string key_;
    std::string close_tag_;
    TypeSet types_;
    enum class ValueState { undecided, streaming, ignored } value_state_ = ValueState::undecided;
    std::string value_;  // while undecided
    size_t n_value_checked_ = 0;
    bool is_value_begin_ = false;
    bool is_value_line_start_ = false;
    int n_open_literals_ = 0;  // <tool_call> examples inside the value

    // JSON.
    JsonTranscoder json_;
    std::string json_out_;
    std::string held_arguments_;  // the last byte of JSON arguments, until the call ends
    struct JsonCall {
        enum class State { object, key_or_end, key, colon, value, after_value, after_object } state = State::object;
        enum class Field { name, arguments, other } field = Field::other;
        // In buffer_. Until the call is confirmed nothing is consumed, so that a rejected one can be text.
        size_t cursor = 0;
        bool is_wrapped = false;
        bool is_list = false;  // [{…}, {…}]
        bool is_confirmed = false;
        int n_nested = 0;  // in {"function": {…}}
        std::string key;
        std::string name;
        bool has_arguments_key = false;
        std::string arguments;  // that came before the name
    } json_call_;
};

}  // namespace espalier::text
