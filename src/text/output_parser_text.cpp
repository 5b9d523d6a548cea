// Content and reasoning, and the recognition of calls and think tags in them.
#include <algorithm>

#include "text/output_parser_machine.h"

namespace espalier::text {
namespace {

constexpr size_t kDoubledOpensMax = 4;
constexpr size_t kBlanksMax = 16;  // looked at after a think tag

}  // namespace

OutputMachine::Step OutputMachine::step_text() {
    const std::string_view view = rest();
    const bool is_llama = format_->syntax == ToolSyntax::llama3_json;
    if (is_plain_) {
        emit_text(1);
        return Step::advance;
    }
    switch (view[0]) {
        case kCallOpen: return step_call_open();
        case kCallClose: return step_call_close();
        case kThinkOpen: return step_think_open();
        case kThinkClose: return step_think_close();
        case '<': return step_tag_in_text();
        case '{':
        case '[':
            if (is_llama && n_rejected_ == 0 && may_call() && (fence_.is_line_blank() || is_after_call_)) {
                return begin_json_call(0, false);
            }
            break;
        case ';':
        case ',':
            if (is_llama && is_after_call_) return step_separator();
            break;
        case '}':
        case ']':
            if (is_after_call_ && in_wrapper_) {
                take_repair(1, "broken_json");
                return Step::advance;
            }
            break;
        default: break;
    }
    size_t n_symbols = 1;
    if (is_after_call_) {
        n_symbols = std::max<size_t>(1, skip_space(view, 0));
    } else {
        while (n_symbols < view.size()) {
            const char c = view[n_symbols];
            if (is_marker_symbol(c) || c == '<' || (is_llama && (c == '{' || c == '['))) break;
            ++n_symbols;
        }
    }
    emit_text(n_symbols);
    return Step::advance;
}

void OutputMachine::emit_text(size_t n_symbols) {
    const std::string text = expand(rest().substr(0, n_symbols));
    pos_ += n_symbols;
    is_plain_ = false;
    n_rejected_ -= std::min(n_rejected_, n_symbols);
    fence_.feed(text);
    if (skip_space(text, 0) < text.size()) is_after_call_ = false;
    if (in_reasoning_) {
        sink_.reasoning(text);
    } else {
        sink_.content(text);
    }
}

// <tool_call>, white space, and a header: a call. Doubled openings count as one.
OutputMachine::Step OutputMachine::step_call_open() {
    const std::string_view view = rest();
    if (may_call()) {
        size_t pos = skip_space(view, 1);
        size_t n_opens = 1;
        while (pos < view.size() && view[pos] == kCallOpen && n_opens < kDoubledOpensMax) {
            pos = skip_space(view, pos + 1);
            ++n_opens;
        }
        if (pos == view.size() && !is_at_end_) return Step::wait_space;
        if (pos < view.size() && (view[pos] == '{' || view[pos] == '[')) return begin_json_call(pos, true);
        const TagMatch header = match_function_header(view, pos, tools_, true);
        if (header.fit == Fit::partial && !is_at_end_) return Step::wait;
        if (header.fit == Fit::yes && (!in_reasoning_ || tools_.find(header.name) != nullptr)) {
            if (n_opens > 1) sink_.repair("doubled_call_open");
            in_wrapper_ = true;
            begin_call(header.name, header.end);
            begin_function(header);
            return Step::advance;
        }
    }
    emit_text(1);
    return Step::advance;
}

OutputMachine::Step OutputMachine::step_call_close() {
    if (in_reasoning_ || fence_.in_fence() || (!is_after_call_ && !in_wrapper_)) {
        emit_text(1);
    } else if (is_after_call_ && in_wrapper_) {
        take_framing(1);
    } else {
        take_repair(1, "stray_call_close");
        begin_segment();
    }
    in_wrapper_ = false;
    return Step::advance;
}

// Opens reasoning where an output begins with it, or alone on a line; else it is a quotation.
OutputMachine::Step OutputMachine::step_think_open() {
    if (in_reasoning_ && !sink_.has_reasoning_segment()) {
        take_repair(1, "redundant_think_open");
        return Step::advance;
    }
    bool opens = !in_reasoning_ && !fence_.in_fence();
    if (opens && sink_.has_content_segment()) {
        const Fit line_end = fence_.is_line_blank() ? ends_line(1) : Fit::no;
        if (line_end == Fit::partial && !is_at_end_) return Step::wait;
        opens = line_end == Fit::yes;
    }
    if (!opens) {
        emit_text(1);
        return Step::advance;
    }
    take_repair(1, "reopened_think");
    begin_segment();
    in_reasoning_ = true;
    return Step::advance;
}

// Ends reasoning. Later ones are dropped where they begin or end a line, or after a call that ended the reasoning.
OutputMachine::Step OutputMachine::step_think_close() {
    if (in_reasoning_) {
        take_framing(1);
        sink_.end_reasoning_segment();
        in_reasoning_ = false;
        begin_segment();
        return Step::advance;
    }
    const char* kind = expects_late_think_close_ ? "late_think_close" : "stray_think_close";
    bool drops = expects_late_think_close_;
    if (!drops && !fence_.in_fence()) {
        drops = !sink_.has_content_segment() || fence_.is_line_blank();
        const Fit line_end = drops ? Fit::yes : ends_line(1);
        if (line_end == Fit::partial && !is_at_end_) return Step::wait;
        drops = line_end != Fit::no;
    }
    if (!drops) {
        emit_text(1);
        return Step::advance;
    }
    take_repair(1, kind);
    expects_late_think_close_ = false;
    begin_segment();
    return Step::advance;
}

// Whether only blanks follow on the line; partial: they do so far.
Fit OutputMachine::ends_line(size_t pos) const {
    const std::string_view view = rest();
    const size_t end = std::min(view.size(), pos + kBlanksMax);
    while (pos < end && (view[pos] == ' ' || view[pos] == '\t' || view[pos] == '\r')) ++pos;
    if (pos == view.size()) return Fit::partial;
    return view[pos] == '\n' ? Fit::yes : Fit::no;
}

// '<' as an ordinary byte: a bare function header, or a closing tag too many after a call.
OutputMachine::Step OutputMachine::step_tag_in_text() {
    const std::string_view view = rest();
    bool is_partial = false;
    if (is_after_call_) {
        for (const std::string_view tag : {std::string_view("</function>"), std::string_view("</parameter>")}) {
            const Fit fit = match_literal(view, 0, tag);
            if (fit == Fit::yes) {
                take_repair(tag.size(), "stray_close_tag");
                return Step::advance;
            }
            is_partial = is_partial || fit == Fit::partial;
        }
    }
    const bool is_next_in_wrapper = is_after_call_ && in_wrapper_;
    if (may_call() && (fence_.is_line_start() || is_next_in_wrapper)) {
        const TagMatch header = match_function_header(view, 0, tools_, is_next_in_wrapper);
        if (header.fit == Fit::yes) {
            sink_.repair("missing_call_open");
            begin_call(header.name, header.end);
            begin_function(header);
            return Step::advance;
        }
        is_partial = is_partial || header.fit == Fit::partial;
    }
    if (is_partial && !is_at_end_) return Step::wait;
    emit_text(1);
    return Step::advance;
}

// Between two JSON calls without wrappers.
OutputMachine::Step OutputMachine::step_separator() {
    const size_t pos = skip_space(rest(), 1);
    if (pos == rest().size() && !is_at_end_) return Step::wait_space;
    if (pos < rest().size() && rest()[pos] == '{') {
        take_framing(1);
    } else {
        emit_text(1);
    }
    return Step::advance;
}

// Content continues as a new segment, on a new line.
void OutputMachine::begin_segment() {
    sink_.end_content_segment();
    fence_ = FenceTracker();
}

// The header of a call is confirmed; it takes n_symbols.
void OutputMachine::begin_call(const std::string& name, size_t n_symbols) {
    if (in_reasoning_) {
        sink_.repair("call_in_reasoning");
        in_reasoning_ = false;
        expects_late_think_close_ = true;
    }
    tool_ = tools_.find(name);
    if (tool_ == nullptr) sink_.repair("undeclared_tool");
    sink_.begin_call(name);
    take_framing(n_symbols);
    used_keys_.clear();
    awaits_json_ = false;
    has_json_body_ = false;
    in_stray_text_ = false;
}

void OutputMachine::begin_function(const TagMatch& header) {
    if (header.repair != nullptr) sink_.repair(header.repair);
    if (format_->syntax != ToolSyntax::qwen_xml) sink_.repair("other_dialect");
    mode_ = Mode::body;
    awaits_json_ = header.is_element_pair;
    if (header.is_self_closing) end_call();
}

}  // namespace espalier::text
