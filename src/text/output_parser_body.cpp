// Inside a function, between its parameters, and the JSON object that some models write there instead.
#include "text/output_parser_machine.h"

namespace espalier::text {

OutputMachine::Step OutputMachine::step_body() {
    const std::string_view view = rest();
    const char c = view[0];
    if (is_space(c)) {
        take_framing(skip_space(view, 0));
        return Step::advance;
    }
    if (c == '{' && used_keys_.empty() && !has_json_body_ && !in_stray_text_) {
        if (!awaits_json_) sink_.repair("json_body");
        has_json_body_ = true;
        json_ = JsonTranscoder();
        json_out_.clear();
        mode_ = Mode::json_body;
        return Step::advance;
    }
    if (awaits_json_) {
        end_call();
        return Step::advance;
    }
    if (c == '<') return step_tag_in_body();
    if (c == kCallClose || c == kCallOpen) {
        sink_.repair("missing_function_close");
        end_call();
        return Step::advance;
    }
    if (is_marker_symbol(c)) {
        take_repair(1, "think_tag_in_call");
        return Step::advance;
    }
    size_t n_symbols = 1;
    while (n_symbols < view.size() && view[n_symbols] != '<' && !is_marker_symbol(view[n_symbols])) ++n_symbols;
    if (!in_stray_text_) sink_.repair("stray_text_in_call");
    in_stray_text_ = true;
    sink_.count_dropped(n_symbols);
    pos_ += n_symbols;
    return Step::advance;
}

OutputMachine::Step OutputMachine::step_tag_in_body() {
    const std::string_view view = rest();
    constexpr std::string_view kFunctionClose = "</function>";
    constexpr std::string_view kParameterClose = "</parameter>";
    const Fit function_close = match_literal(view, 0, kFunctionClose);
    if (function_close == Fit::yes) {
        take_framing(kFunctionClose.size());
        end_call();
        return Step::advance;
    }
    const Fit parameter_close = match_literal(view, 0, kParameterClose);
    if (parameter_close == Fit::yes) {
        take_repair(kParameterClose.size(), "stray_close_tag");
        return Step::advance;
    }
    const TagMatch parameter = match_parameter_header(view, 0, tool_);
    if (parameter.fit == Fit::yes) {
        begin_parameter(parameter, std::string(kParameterClose));
        return Step::advance;
    }
    const TagMatch element = match_element(view, 0, tool_);
    if (element.fit == Fit::yes) {
        begin_parameter(element, "</" + element.name + ">");
        return Step::advance;
    }
    const TagMatch function = match_function_header(view, 0, tools_, in_wrapper_);
    if (function.fit == Fit::yes) {
        sink_.repair("missing_function_close");
        end_call();
        return Step::advance;
    }
    const bool is_partial = function_close == Fit::partial || parameter_close == Fit::partial || parameter.fit == Fit::partial ||
                            element.fit == Fit::partial || function.fit == Fit::partial;
    if (is_partial && !is_at_end_) return Step::wait;
    if (!in_stray_text_) sink_.repair(is_partial ? "partial_tag" : "stray_text_in_call");
    in_stray_text_ = true;
    sink_.count_dropped(1);
    ++pos_;
    return Step::advance;
}

// Outside of strings, '<' and markers end the object: neither occurs in JSON.
OutputMachine::Step OutputMachine::step_json_body() {
    const std::string_view view = rest();
    size_t n_taken = 0;
    while (n_taken < view.size() && !json_.is_done()) {
        const char c = view[n_taken];
        if (json_.in_string() && is_marker_symbol(c)) {
            json_.feed_text(marker_text(*format_, c), json_out_);
        } else if (is_marker_symbol(c) || (c == '<' && !json_.in_string())) {
            break;
        } else if (!json_.feed(c, json_out_)) {
            break;
        }
        ++n_taken;
    }
    sink_.count_arguments(n_text_bytes(view.substr(0, n_taken)));
    pos_ += n_taken;
    const bool is_over = json_.is_done() || n_taken < view.size();
    if (is_over) {
        close_json_body();
    } else {
        sink_.arguments(json_out_);
        json_out_.clear();
    }
    return Step::advance;
}

void OutputMachine::close_json_body() {
    json_.close(json_out_);
    note_json_repairs();
    write_last_arguments(json_out_);
    json_out_.clear();
    mode_ = Mode::body;
}

// The end of arguments that came as JSON. Their last byte waits for the end of the call, so that a cut call never looks finished.
void OutputMachine::write_last_arguments(std::string_view json) {
    const bool is_scalar = std::string_view("}]\"").find(json.back()) == std::string_view::npos;
    const size_t n_held = is_scalar ? json.size() : 1;
    sink_.arguments(json.substr(0, json.size() - n_held));
    held_arguments_ = json.substr(json.size() - n_held);
}

void OutputMachine::note_json_repairs() {
    if (json_.is_broken()) {
        sink_.repair("broken_json");
    } else if (json_.is_python()) {
        sink_.repair("python_literal");
    }
}

void OutputMachine::begin_parameter(const TagMatch& header, std::string close_tag) {
    take_framing(header.end);
    if (header.repair != nullptr) sink_.repair(header.repair);
    in_stray_text_ = false;
    key_ = header.name;
    close_tag_ = std::move(close_tag);
    value_.clear();
    n_value_checked_ = 0;
    is_value_begin_ = !header.has_value_in_tag;
    is_value_line_start_ = true;
    n_open_literals_ = 0;
    mode_ = Mode::value;
    if (has_json_body_ || !used_keys_.insert(key_).second) {
        sink_.repair(has_json_body_ ? "parameter_after_json" : "duplicate_parameter");
        value_state_ = ValueState::ignored;
    } else {
        if (tool_ != nullptr && !tool_->has_parameter(key_)) sink_.repair("undeclared_parameter");
        types_ = tool_ == nullptr ? TypeSet(TypeSet::string) : tool_->parameter_types(key_);
        value_state_ = ValueState::undecided;
        if (types_.is_string_only()) {
            write_key();
            sink_.arguments("\"");
            value_state_ = ValueState::streaming;
        }
    }
    if (header.is_self_closing) end_value();
}

void OutputMachine::end_call() {
    if (has_json_body_) {
        sink_.arguments(held_arguments_);
        held_arguments_.clear();
    } else if (sink_.has_arguments()) {
        sink_.arguments("}");
    }
    if (!sink_.has_arguments()) sink_.arguments("{}");
    sink_.end_call();
    mode_ = Mode::text;
    is_after_call_ = true;
    begin_segment();
}

}  // namespace espalier::text
