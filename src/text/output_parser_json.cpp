#include "text/output_parser_json.h"

#include <cctype>

#include "text/json_escape.h"
#include "text/output_parser_symbols.h"

namespace espalier::text {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool ends_value(char c) {
    return c == ',' || c == '}' || c == ']' || c == ')';
}

size_t skip_digits(std::string_view text, size_t pos) {
    while (pos < text.size() && is_digit(text[pos])) ++pos;
    return pos;
}

}  // namespace

bool is_json_number(std::string_view text) {
    size_t pos = !text.empty() && text[0] == '-' ? 1 : 0;
    const size_t first = pos;
    pos = skip_digits(text, pos);
    if (pos == first || (text[first] == '0' && pos - first > 1)) return false;
    if (pos < text.size() && text[pos] == '.') {
        const size_t fraction = pos + 1;
        pos = skip_digits(text, fraction);
        if (pos == fraction) return false;
    }
    if (pos < text.size() && (text[pos] == 'e' || text[pos] == 'E')) {
        ++pos;
        if (pos < text.size() && (text[pos] == '+' || text[pos] == '-')) ++pos;
        const size_t exponent = pos;
        pos = skip_digits(text, exponent);
        if (pos == exponent) return false;
    }
    return pos == text.size();
}

bool JsonTranscoder::feed(char c, std::string& out) {
    // A step either takes the byte or changes the phase and looks at it again; no phase repeats for one byte.
    while (phase_ != Phase::done) {
        if (step(c, out)) return true;
    }
    return false;
}

bool JsonTranscoder::step(char c, std::string& out) {
    switch (phase_) {
        case Phase::value:
            if (is_space(c)) return true;
            return begin_value(c, out);
        case Phase::string: string_char(c, out); return true;
        case Phase::escape: escape_char(c, out); return true;
        case Phase::unicode:
            if (!is_hex(c)) {
                flush_bad_unicode(out);
                return false;
            }
            held_ += c;
            if (held_.size() == (is_hex_byte_ ? 2u : 4u)) {
                text_target(out) += (is_hex_byte_ ? "\\u00" : "\\u") + held_;
                held_.clear();
                phase_ = Phase::string;
            }
            return true;
        case Phase::quote_held:
            if (is_space(c)) {
                held_ += c;
                return true;
            }
            if (c == ',' || c == ':' || ends_value(c)) {
                held_.clear();
                end_string(out);
                return false;
            }
            is_broken_ = true;
            append_json_escaped(text_target(out), std::string_view(&quote_, 1));
            append_json_escaped(text_target(out), held_);
            held_.clear();
            phase_ = Phase::string;
            return false;
        case Phase::scalar:
            if (ends_value(c) || c == '\n' || (is_key_ && c == ':')) {
                end_scalar(out);
                return false;
            }
            held_ += c;
            return true;
        case Phase::key: key_char(c, out); return phase_ != Phase::scalar;
        case Phase::colon:
            if (c == ':') {
                phase_ = Phase::value;
                return true;
            }
            if (is_space(c)) return true;
            is_broken_ = true;
            has_key_ = false;
            key_.clear();
            phase_ = Phase::after_value;
            return false;
        case Phase::after_value: after_value_char(c, out); return true;
        case Phase::done: break;
    }
    return false;
}

// Returns whether the byte was taken.
bool JsonTranscoder::begin_value(char c, std::string& out) {
    if (ends_value(c) && stack_.empty()) {
        is_broken_ = true;
        phase_ = Phase::done;
        return false;
    }
    if (c == '{') {
        begin_container('{', out);
    } else if (c == '[' || c == '(') {
        is_python_ = is_python_ || c == '(';
        begin_container('[', out);
    } else if (c == '"' || c == '\'') {
        begin_string(c);
        is_key_ = false;
        before_value(out);
        out += '"';
    } else if (ends_value(c) && !stack_.empty()) {
        // "[1, ]", "{"a": }", ",,": no value here.
        is_broken_ = is_broken_ || has_key_ || c == ',';
        has_key_ = false;
        key_.clear();
        after_value_char(c, out);
    } else {
        if (root_ == Root::none) root_ = Root::scalar;
        is_key_ = false;
        phase_ = Phase::scalar;
        return false;
    }
    return true;
}

void JsonTranscoder::begin_container(char kind, std::string& out) {
    if (root_ == Root::none) root_ = kind == '{' ? Root::object : Root::array;
    before_value(out);
    out += kind;
    stack_ += kind;
    n_objects_ += kind == '{';
    has_items_ = false;
    has_comma_ = false;
    phase_ = kind == '{' ? Phase::key : Phase::value;
}

void JsonTranscoder::begin_string(char quote) {
    if (root_ == Root::none) root_ = Root::string;
    is_python_ = is_python_ || quote == '\'';
    quote_ = quote;
    phase_ = Phase::string;
}

// Separator and key, once it is sure that a value follows.
void JsonTranscoder::before_value(std::string& out) {
    if (stack_.empty()) return;
    if (has_items_) {
        is_broken_ = is_broken_ || !has_comma_;
        out += ", ";
    }
    has_comma_ = false;
    has_items_ = true;
    if (stack_.back() == '{') {
        out += '"';
        out += key_;
        out += "\": ";
        key_.clear();
        has_key_ = false;
    }
}

void JsonTranscoder::string_char(char c, std::string& out) {
    if (c == quote_) {
        phase_ = Phase::quote_held;
        held_.clear();
    } else if (c == '\\') {
        phase_ = Phase::escape;
    } else {
        is_broken_ = is_broken_ || static_cast<unsigned char>(c) < 0x20;
        append_json_escaped(text_target(out), std::string_view(&c, 1));
    }
}

void JsonTranscoder::feed_text(std::string_view text, std::string& out) {
    for (const char c : text) {
        if (phase_ == Phase::escape) {
            escape_char(c, out);
            continue;
        }
        if (phase_ == Phase::unicode) flush_bad_unicode(out);
        append_json_escaped(text_target(out), std::string_view(&c, 1));
    }
}

void JsonTranscoder::escape_char(char c, std::string& out) {
    std::string& text = text_target(out);
    phase_ = Phase::string;
    if (c == 'u' || c == 'x') {
        is_hex_byte_ = c == 'x';
        is_python_ = is_python_ || is_hex_byte_;
        held_.clear();
        phase_ = Phase::unicode;
    } else if (c == '\'') {
        is_python_ = true;
        text += c;
    } else if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
        text += '\\';
        text += c;
    } else {
        is_broken_ = true;
        text += "\\\\";
        append_json_escaped(text, std::string_view(&c, 1));
    }
}

void JsonTranscoder::flush_bad_unicode(std::string& out) {
    is_broken_ = true;
    text_target(out) += (is_hex_byte_ ? "\\\\x" : "\\\\u") + held_;
    held_.clear();
    phase_ = Phase::string;
}

void JsonTranscoder::end_string(std::string& out) {
    if (is_key_) {
        phase_ = Phase::colon;
        return;
    }
    out += '"';
    value_ended();
}

void JsonTranscoder::end_scalar(std::string& out) {
    const std::string text(trim_space(held_));
    held_.clear();
    if (is_key_) {
        is_broken_ = true;
        append_json_escaped(key_, text);
        phase_ = Phase::colon;
        return;
    }
    before_value(out);
    const bool is_word = text == "True" || text == "False" || text == "None";
    if (is_json_number(text) || text == "true" || text == "false" || text == "null") {
        out += text;
    } else if (is_word) {
        is_python_ = true;
        out += text == "None" ? "null" : text == "True" ? "true" : "false";
    } else {
        is_broken_ = true;
        out += '"';
        append_json_escaped(out, text);
        out += '"';
    }
    value_ended();
}

void JsonTranscoder::value_ended() {
    phase_ = stack_.empty() ? Phase::done : Phase::after_value;
}

void JsonTranscoder::key_char(char c, std::string& out) {
    if (is_space(c)) return;
    if (c == '"' || c == '\'') {
        begin_string(c);
        is_key_ = true;
        has_key_ = true;
        key_.clear();
    } else if (ends_value(c)) {
        is_broken_ = is_broken_ || c == ',';
        after_value_char(c, out);
    } else if (c == ':' || c == '{' || c == '[') {
        is_broken_ = true;
    } else {
        is_key_ = true;
        has_key_ = true;
        key_.clear();
        phase_ = Phase::scalar;
    }
}

void JsonTranscoder::after_value_char(char c, std::string& out) {
    if (is_space(c)) return;
    if (c == ',') {
        is_broken_ = is_broken_ || has_comma_;
        has_comma_ = true;
        phase_ = stack_.back() == '{' ? Phase::key : Phase::value;
    } else if (ends_value(c)) {
        close_container(c, out);
    } else {
        is_broken_ = true;  // stray bytes between items are dropped
    }
}

void JsonTranscoder::close_container(char c, std::string& out) {
    const char kind = c == '}' ? '{' : '[';
    is_python_ = is_python_ || c == ')' || has_comma_;
    const int n_kind = kind == '{' ? n_objects_ : static_cast<int>(stack_.size()) - n_objects_;
    if (n_kind == 0) {
        is_broken_ = true;
        phase_ = Phase::after_value;
        return;
    }
    while (stack_.back() != kind) {
        is_broken_ = true;
        pop(out);
    }
    pop(out);
}

void JsonTranscoder::pop(std::string& out) {
    out += stack_.back() == '{' ? '}' : ']';
    n_objects_ -= stack_.back() == '{';
    stack_.pop_back();
    has_items_ = true;
    has_comma_ = false;
    value_ended();
}

void JsonTranscoder::close(std::string& out) {
    if (phase_ == Phase::done) return;
    if (phase_ == Phase::unicode) flush_bad_unicode(out);
    if (phase_ == Phase::escape) {
        is_broken_ = true;
        text_target(out) += "\\\\";
        phase_ = Phase::string;
    }
    is_broken_ = is_broken_ || phase_ == Phase::string || !stack_.empty();
    if (phase_ == Phase::string || phase_ == Phase::quote_held) end_string(out);
    if (phase_ == Phase::scalar && !is_key_) end_scalar(out);
    while (!stack_.empty()) pop(out);
    is_broken_ = is_broken_ || root_ == Root::none;
    phase_ = Phase::done;
}

}  // namespace espalier::text
