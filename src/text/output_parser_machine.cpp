#include "text/output_parser_machine.h"

#include "base/check.h"

namespace espalier::text {

OutputMachine::OutputMachine(const ToolFormat& format, const std::vector<Value>& tools, PromptState state)
    : format_(&format), tools_(tools), in_reasoning_(state == PromptState::think_open) {
    has_tools_ = format.syntax != ToolSyntax::none && !tools_.empty();
    if (!has_tools_ && !in_reasoning_) sink_.keep_leading_space();
}

void OutputMachine::feed(std::string_view symbols) {
    sink_.count_input(n_text_bytes(symbols));
    buffer_ += symbols;
    if (skips_space_ && skip_space(symbols, 0) == symbols.size()) return;
    run();
}

void OutputMachine::run() {
    skips_space_ = false;
    while (pos_ < buffer_.size()) {
        const Step result = step();
        if (result == Step::advance) continue;
        CHECK(!is_at_end_, "the output parser waits for more after the end");
        skips_space_ = result == Step::wait_space;
        break;
    }
    constexpr size_t kCompactBytes = 4096;
    if (mode_ != Mode::json_call && (pos_ == buffer_.size() || pos_ > kCompactBytes)) {
        buffer_.erase(0, pos_);
        pos_ = 0;
    }
}

OutputMachine::Step OutputMachine::step() {
    switch (mode_) {
        case Mode::text: return step_text();
        case Mode::body: return step_body();
        case Mode::value: return step_value();
        case Mode::json_body: return step_json_body();
        case Mode::json_call: return step_json_call();
    }
    return Step::wait;
}

void OutputMachine::finish(StopCause cause) {
    is_at_end_ = true;
    cause_ = cause;
    run();
    if (mode_ == Mode::json_call && !json_call_.is_confirmed) {
        reject_json_call();
        run();
    }
    if (mode_ == Mode::value && cause == StopCause::eos) end_value();
    if (mode_ != Mode::text && cause == StopCause::eos) {
        sink_.repair("unclosed_call");
        if (mode_ == Mode::json_call) {
            end_json_call();
        } else {
            if (mode_ == Mode::json_body) close_json_body();
            end_call();
        }
    }
    // A call that was cut must not look like a finished call without arguments.
    if (mode_ != Mode::text && !sink_.has_arguments()) sink_.arguments("{");
    sink_.finish(cause);
}

size_t OutputMachine::n_text_bytes(std::string_view symbols) const {
    size_t n_bytes = 0;
    for (const char c : symbols) n_bytes += is_marker_symbol(c) ? marker_text(*format_, c).size() : 1;
    return n_bytes;
}

std::string OutputMachine::expand(std::string_view symbols) const {
    std::string text;
    for (const char c : symbols) {
        if (is_marker_symbol(c)) {
            text += marker_text(*format_, c);
        } else {
            text += c;
        }
    }
    return text;
}

void OutputMachine::take_framing(size_t n_symbols) {
    sink_.count_framing(n_text_bytes(rest().substr(0, n_symbols)));
    pos_ += n_symbols;
}

void OutputMachine::take_repair(size_t n_symbols, const char* kind) {
    sink_.repair(kind, n_text_bytes(rest().substr(0, n_symbols)));
    pos_ += n_symbols;
}

}  // namespace espalier::text
