// The value of one parameter: raw text up to a close that must prove itself, because file contents may hold any tag.
//
// A close tag counts only if a tag that may follow it does follow. A <tool_call> at a line start is an example inside the value
// and lasts to its own </tool_call>. A value without its close ends at the next declared parameter alone on its line, or at a
// </function> (or nothing but </tool_call>) at a line start that ends the call. Everything else is text, released as soon as that
// is sure.
#include "text/json_escape.h"
#include "text/output_parser_machine.h"

namespace espalier::text {
namespace {

constexpr std::string_view kFunctionClose = "</function>";
constexpr std::string_view kParameterClose = "</parameter>";

// Symbols of a line break at the start: "\n" or "\r\n".
size_t line_break(std::string_view view) {
    if (!view.empty() && view[0] == '\n') return 1;
    return view.size() > 1 && view[0] == '\r' && view[1] == '\n' ? 2 : 0;
}

bool may_begin_tag(char c) {
    return c == '<' || is_marker_symbol(c);
}

Fit either(Fit a, Fit b) {
    if (a == Fit::yes || b == Fit::yes) return Fit::yes;
    return a == Fit::partial || b == Fit::partial ? Fit::partial : Fit::no;
}

}  // namespace

// One line break after the opening tag is framing.
OutputMachine::Step OutputMachine::step_value_begin() {
    if (rest() == "\r" && !is_at_end_) return Step::wait;
    take_framing(line_break(rest()));
    is_value_begin_ = false;
    return Step::advance;
}

OutputMachine::Step OutputMachine::step_value() {
    if (is_value_begin_) return step_value_begin();
    const std::string_view view = rest();
    if (view == "\r" && !is_at_end_) return Step::wait;
    const size_t n_break = line_break(view);
    if (n_break == 0 && !may_begin_tag(view[0])) {
        size_t n_symbols = 1;
        while (n_symbols < view.size() && view[n_symbols] != '\n' && view[n_symbols] != '\r' && !may_begin_tag(view[n_symbols])) {
            ++n_symbols;
        }
        take_value_text(n_symbols);
        return Step::advance;
    }
    const Closing closing = closing_at(view, n_break);
    switch (closing.kind) {
        case Closing::Kind::wait: return Step::wait;
        case Closing::Kind::wait_space: return Step::wait_space;
        case Closing::Kind::data: take_value_text(closing.n_symbols); break;
        case Closing::Kind::drop: take_repair(closing.n_symbols, closing.repair); break;
        case Closing::Kind::close:
            if (closing.repair != nullptr) sink_.repair(closing.repair);
            take_framing(closing.n_symbols);
            end_value();
            break;
    }
    return Step::advance;
}

// At a line break (n_break symbols) or at what may begin a tag.
OutputMachine::Closing OutputMachine::closing_at(std::string_view view, size_t n_break) const {
    if (n_break == view.size()) {
        // Where the output ends the value ends, and its last line break is framing.
        if (!is_at_end_) return {Closing::Kind::wait, 0, nullptr};
        return {Closing::Kind::drop, n_break, "unclosed_value"};
    }
    const bool is_tag = may_begin_tag(view[n_break]);
    const Closing data{Closing::Kind::data, n_break + (is_tag ? 1 : 0), nullptr};
    if (!is_tag) return data;
    const bool is_line_start = n_break > 0 || is_value_line_start_;
    Closing closing;
    if (n_open_literals_ > 0) {
        closing = closing_in_literal(view, n_break);
    } else if (view[n_break] == kCallClose && is_line_start) {
        closing = closing_by_end(view, n_break, n_break + 1);
    } else if (view[n_break] == '<') {
        closing = closing_at_tag(view, n_break, is_line_start);
    }
    return closing.kind == Closing::Kind::data ? data : closing;
}

OutputMachine::Closing OutputMachine::closing_at_tag(std::string_view view, size_t n_break, bool is_line_start) const {
    const Fit close = match_literal(view, n_break, close_tag_);
    if (close == Fit::yes) return closing_by_tag(view, n_break);
    bool is_partial = close == Fit::partial;
    if (is_line_start) {
        const Fit function_close = match_literal(view, n_break, kFunctionClose);
        if (function_close == Fit::yes) return closing_by_function(view, n_break);
        const Closing next = closing_by_parameter(view, n_break);
        if (next.kind == Closing::Kind::close) return next;
        is_partial = is_partial || function_close == Fit::partial || next.kind == Closing::Kind::wait;
    }
    if (!is_partial) return {};
    if (!is_at_end_) return {Closing::Kind::wait, 0, nullptr};
    // Ended inside a tag, or on text that looks like the start of one. After a cut nobody can tell, and the value is unfinished
    // anyway.
    const size_t n_certain = is_line_start ? 2 : 3;
    if (cause_ == StopCause::eos && view.size() - n_break < n_certain) return {};
    return {Closing::Kind::drop, view.size(), "partial_tag"};
}

// The close tag counts if a tag that may follow it, or the end, follows.
OutputMachine::Closing OutputMachine::closing_by_tag(std::string_view view, size_t n_break) const {
    const size_t end = n_break + close_tag_.size();
    const size_t pos = skip_space(view, end);
    const Closing close{Closing::Kind::close, end, nullptr};
    if (pos == view.size()) return is_at_end_ ? close : Closing{Closing::Kind::wait_space, 0, nullptr};
    const Fit follower = match_follower(view, pos);
    if (follower == Fit::partial && !is_at_end_) return {Closing::Kind::wait, 0, nullptr};
    return follower == Fit::no ? Closing{} : close;
}

Fit OutputMachine::match_follower(std::string_view view, size_t pos) const {
    if (view[pos] == kCallClose) return Fit::yes;
    Fit fit = match_literal(view, pos, close_tag_);
    for (const std::string_view tag :
         {std::string_view("<parameter="), std::string_view("<parameter name="), kFunctionClose, kParameterClose}) {
        fit = either(fit, match_literal(view, pos, tag));
    }
    if (close_tag_ != kParameterClose) fit = either(fit, match_element(view, pos, tool_).fit);
    return fit;
}

// </function> at a line start without </parameter> before it, then </tool_call> or the end.
OutputMachine::Closing OutputMachine::closing_by_function(std::string_view view, size_t n_break) const {
    const size_t pos = skip_space(view, n_break + kFunctionClose.size());
    if (pos < view.size() && view[pos] == kCallClose) return {Closing::Kind::close, n_break, "missing_parameter_close"};
    return closing_by_end(view, n_break, pos);
}

// A closing tag that would end the whole output: a close if nothing follows, text otherwise.
OutputMachine::Closing OutputMachine::closing_by_end(std::string_view view, size_t n_break, size_t pos) const {
    if (skip_space(view, pos) < view.size()) return {};
    if (!is_at_end_) return {Closing::Kind::wait_space, 0, nullptr};
    if (cause_ == StopCause::length) return {Closing::Kind::drop, view.size(), "partial_tag"};
    return {Closing::Kind::close, n_break, "missing_parameter_close"};
}

// <parameter=KEY> of a declared parameter that was not given yet, alone on its line.
OutputMachine::Closing OutputMachine::closing_by_parameter(std::string_view view, size_t n_break) const {
    if (tool_ == nullptr) return {};
    const TagMatch header = match_parameter_header(view, n_break, tool_);
    if (header.fit == Fit::partial) return {Closing::Kind::wait, 0, nullptr};
    if (header.fit == Fit::no || header.has_value_in_tag || header.is_self_closing || view[header.end - 1] != '>') return {};
    if (!tool_->has_parameter(header.name) || used_keys_.contains(header.name)) return {};
    const Closing close{Closing::Kind::close, n_break, "missing_parameter_close"};
    const std::string_view after = view.substr(header.end);
    if (after.empty() || after == "\r") return is_at_end_ ? close : Closing{Closing::Kind::wait, 0, nullptr};
    return line_break(after) > 0 ? close : Closing{};
}

// Inside an example only the very end counts: if the output ends with all three closing tags, they are the real ones and the
// <tool_call> that opened the example was a mere mention.
OutputMachine::Closing OutputMachine::closing_in_literal(std::string_view view, size_t n_break) const {
    if (view[n_break] != '<') return {};
    size_t pos = n_break;
    for (const std::string_view tag : {std::string_view(close_tag_), kFunctionClose}) {
        const Fit fit = match_literal(view, pos, tag);
        if (fit == Fit::partial && !is_at_end_) return {Closing::Kind::wait, 0, nullptr};
        if (fit != Fit::yes) return {};
        pos = skip_space(view, pos + tag.size());
        if (pos == view.size()) return is_at_end_ ? Closing{} : Closing{Closing::Kind::wait_space, 0, nullptr};
    }
    if (view[pos] != kCallClose || skip_space(view, pos + 1) < view.size()) return {};
    if (!is_at_end_) return {Closing::Kind::wait_space, 0, nullptr};
    return {Closing::Kind::close, n_break + close_tag_.size(), "unbalanced_example"};
}

void OutputMachine::take_value_text(size_t n_symbols) {
    const std::string_view symbols = rest().substr(0, n_symbols);
    const char last = symbols.back();
    const bool is_line_start = symbols.size() > 1 ? symbols[symbols.size() - 2] == '\n' : is_value_line_start_;
    if (last == kCallOpen && is_line_start) ++n_open_literals_;
    if (last == kCallClose && n_open_literals_ > 0) --n_open_literals_;
    is_value_line_start_ = last == '\n';
    const std::string text = expand(symbols);
    pos_ += n_symbols;
    write_value(text);
}

void OutputMachine::write_value(std::string_view text) {
    if (value_state_ == ValueState::ignored) {
        sink_.count_dropped(text.size());
        return;
    }
    sink_.count_arguments(text.size());
    std::string json;
    if (value_state_ == ValueState::streaming) {
        append_json_escaped(json, text);
        sink_.arguments(json);
        return;
    }
    value_ += text;
    if (may_be_non_string(value_, n_value_checked_, types_)) {
        n_value_checked_ = value_.size();
        return;
    }
    write_key();
    json = '"';
    append_json_escaped(json, value_);
    sink_.arguments(json);
    value_.clear();
    value_state_ = ValueState::streaming;
}

void OutputMachine::write_key() {
    std::string json = sink_.has_arguments() ? ", \"" : "{\"";
    append_json_escaped(json, key_);
    json += "\": ";
    sink_.arguments(json);
}

void OutputMachine::end_value() {
    mode_ = Mode::body;
    if (value_state_ == ValueState::streaming) {
        sink_.arguments("\"");
    } else if (value_state_ == ValueState::undecided) {
        const TypedValue typed = type_value(value_, types_);
        if (typed.repair != nullptr) sink_.repair(typed.repair);
        write_key();
        sink_.arguments(typed.json);
    }
    value_.clear();
}

}  // namespace espalier::text
