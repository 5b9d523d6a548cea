#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) {
    return is_name_start(c) || is_digit(c);
}

// Line ends become '\n' and one at the very end is dropped, as Jinja reads a source.
std::string normalize_newlines(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            out += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            out += source[i];
        }
    }
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

class Lexer {
public:
    explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), text_(source_) {}

    std::variant<std::vector<Token>, TemplateError> run() {
        if (!is_valid_utf8(text_)) return TemplateError{ErrorKind::syntax, "the template is not valid UTF-8", 0};
        while (!error_ && at_ < text_.size()) root();
        if (error_) return *std::move(error_);
        push(Token::Kind::end, "");
        return std::move(tokens_);
    }

private:
    void fail(std::string message) {
        if (!error_) error_ = TemplateError{ErrorKind::syntax, std::move(message), line_};
    }

    void push(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

    void advance_to(size_t end) {
        line_ += static_cast<int>(
            std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
        at_ = end;
    }

    size_t skip_space(size_t i) const {
        while (i < text_.size()) {
            const CodePoint c = decode_at(text_, i);
            if (!is_space(c.value)) break;
            i += c.bytes;
        }
        return i;
    }

    char char_at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

    // Text up to the next tag, then the tag.
    void root() {
        size_t tag = at_;
        for (;; ++tag) {
            tag = text_.find('{', tag);
            if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
                tag = text_.size();
                break;
            }
            const char next = text_[tag + 1];
            if (next == '{' || next == '%' || next == '#') break;
        }
        if (tag == text_.size()) {
            push_data(text_.substr(at_));
            advance_to(tag);
            return;
        }
        const char kind = text_[tag + 1];
        const char mark = char_at(tag + 2) == '-' || char_at(tag + 2) == '+' ? char_at(tag + 2) : '\0';
        push_data(strip_before(text_.substr(at_, tag - at_), mark, kind));
        advance_to(tag + 2 + (mark != '\0' ? 1 : 0));
        at_line_start_ = false;
        if (kind == '#') comment();
        else if (kind == '%' && raw_begin() != 0) raw();
        else inside(kind == '{' ? Token::Kind::variable_begin : Token::Kind::block_begin);
    }

    void push_data(std::string_view text) {
        if (!text.empty()) push(Token::Kind::data, std::string(text));
    }

    std::string_view strip_before(std::string_view text, char mark, char kind) const {
        if (mark == '-') return strip(text, nullptr, Side::right);
        if (mark == '+' || kind == '{') return text;
        const size_t newline = text.rfind('\n');
        const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
        if (newline == std::string_view::npos && !at_line_start_) return text;
        const std::string_view blanks = text.substr(line_begin);
        return strip(blanks, nullptr, Side::both).empty() ? text.substr(0, line_begin) : text;
    }

    // After the closing delimiter: '-' eats all white space, else trim_blocks eats one newline.
    size_t after_close(size_t close, char mark, bool trims_newline) {
        size_t end = close + 2;
        if (mark == '-') end = skip_space(end);
        else if (mark != '+' && trims_newline && char_at(end) == '\n') ++end;
        at_line_start_ = end > 0 && text_[end - 1] == '\n';
        return end;
    }

    void comment() {
        if (at_ == text_.size()) return;  // as Jinja: nothing was opened
        const size_t close = text_.find("#}", at_);
        if (close == std::string_view::npos) return fail("Missing end of comment tag");
        const char before = close > at_ ? text_[close - 1] : '\0';
        const char mark = before == '-' || before == '+' ? before : '\0';
        advance_to(after_close(close, mark, true));
    }

    // The byte after "raw" and its closing delimiter if the tag that begins here is {% raw %}, else 0.
    size_t raw_begin() const {
        size_t i = skip_space(at_);
        if (text_.substr(i, 3) != "raw") return 0;
        i = skip_space(i + 3);
        if (char_at(i) == '-' && text_.substr(i + 1, 2) == "%}") return skip_space(i + 3);
        return text_.substr(i, 2) == "%}" ? i + 2 : 0;
    }

    void raw() {
        advance_to(raw_begin());
        if (at_ == text_.size()) return;
        for (size_t tag = text_.find("{%", at_); tag != std::string_view::npos; tag = text_.find("{%", tag + 2)) {
            const char open = char_at(tag + 2);
            const char mark = open == '-' || open == '+' ? open : '\0';
            size_t i = skip_space(tag + 2 + (mark != '\0' ? 1 : 0));
            if (text_.substr(i, 6) != "endraw") continue;
            i = skip_space(i + 6);
            const char end_mark = char_at(i) == '-' || char_at(i) == '+' ? char_at(i) : '\0';
            if (end_mark != '\0') ++i;
            if (text_.substr(i, 2) != "%}") continue;
            at_line_start_ = at_ > 0 && text_[at_ - 1] == '\n';
            push_data(strip_before(text_.substr(at_, tag - at_), mark, '%'));
            advance_to(after_close(i, end_mark, true));
            return;
        }
        fail("Missing end of raw directive");
    }

    void inside(Token::Kind begin) {
        const bool is_variable = begin == Token::Kind::variable_begin;
        const std::string_view close = is_variable ? "}}" : "%}";
        push(begin, "");
        std::string open_brackets;
        while (!error_) {
            advance_to(skip_space(at_));
            if (at_ >= text_.size()) return;  // the parser reports the missing end
            if (open_brackets.empty()) {
                const char c = text_[at_];
                const char mark = c == '-' || (c == '+' && !is_variable) ? c : '\0';
                const size_t i = at_ + (mark != '\0' ? 1 : 0);
                if (text_.substr(i, 2) == close) {
                    push(is_variable ? Token::Kind::variable_end : Token::Kind::block_end, "");
                    advance_to(after_close(i, mark, !is_variable));
                    return;
                }
            }
            token(open_brackets);
        }
    }

    void token(std::string& open_brackets) {
        const char c = text_[at_];
        if (is_digit(c)) return number();
        if (is_name_start(c)) {
            size_t end = at_;
            while (end < text_.size() && is_name_part(text_[end])) ++end;
            push(Token::Kind::name, std::string(text_.substr(at_, end - at_)));
            return advance_to(end);
        }
        if (c == '\'' || c == '"') return string(c);
        op(open_brackets);
    }

    void op(std::string& open_brackets) {
        static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
        static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
        const char c = text_[at_];
        for (const std::string_view spelled : kDouble) {
            if (text_.substr(at_, 2) != spelled) continue;
            push(Token::Kind::op, std::string(spelled));
            return advance_to(at_ + 2);
        }
        if (kSingle.find(c) == std::string_view::npos) {
            return fail(fmt::format("unexpected char '{}' at {}", text_.substr(at_, decode_at(text_, at_).bytes), at_));
        }
        if (c == '(' || c == '[' || c == '{') {
            open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (open_brackets.empty()) return fail(fmt::format("unexpected '{}'", c));
            if (open_brackets.back() != c) return fail(fmt::format("unexpected '{}', expected '{}'", c, open_brackets.back()));
            open_brackets.pop_back();
        }
        push(Token::Kind::op, std::string(1, c));
        advance_to(at_ + 1);
    }

    // Digits with single underscores between them; the end of the run.
    template <class IsDigit>
    size_t digit_run(size_t i, IsDigit is_valid, std::string& digits) const {
        while (is_valid(char_at(i)) || (char_at(i) == '_' && is_valid(char_at(i + 1)))) {
            if (text_[i] != '_') digits += text_[i];
            ++i;
        }
        return i;
    }

    void number() {
        if (char_at(at_) == '0' && std::string_view("bBoOxX").find(char_at(at_ + 1)) != std::string_view::npos &&
            at_ + 1 < text_.size()) {
            return based_integer();
        }
        std::string digits;
        size_t end = digit_run(at_, is_digit, digits);
        bool is_float = false;
        const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';  // x.0.1 is two subscripts
        if (!after_dot && char_at(end) == '.' && is_digit(char_at(end + 1))) {
            is_float = true;
            digits += '.';
            end = digit_run(end + 1, is_digit, digits);
        }
        if (!after_dot && (char_at(end) == 'e' || char_at(end) == 'E')) {
            const size_t sign = char_at(end + 1) == '+' || char_at(end + 1) == '-' ? 1 : 0;
            if (is_digit(char_at(end + 1 + sign))) {
                is_float = true;
                digits += 'e';
                if (sign != 0) digits += char_at(end + 1);
                end = digit_run(end + 1 + sign, is_digit, digits);
            }
        }
        const bool has_leading_zero = digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos;
        if (!is_float && has_leading_zero) return fail(fmt::format("the integer {} begins with 0", digits));
        push(is_float ? Token::Kind::number : Token::Kind::integer, std::move(digits));
        advance_to(end);
    }

    void based_integer() {
        const char letter = static_cast<char>(char_at(at_ + 1) | 0x20);
        const int base = letter == 'b' ? 2 : letter == 'o' ? 8 : 16;
        const auto is_valid = [&](char c) {
            const int value = is_digit(c)            ? c - '0'
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : 99;
            return value < base;
        };
        std::string digits;
        const size_t end = digit_run(at_ + 2, is_valid, digits);
        uint64_t value = 0;
        const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
        if (digits.empty() || result.ec != std::errc()) return fail("malformed integer");
        push(Token::Kind::integer, std::to_string(value));
        advance_to(end);
    }

    void string(char quote) {
        std::string out;
        size_t i = at_ + 1;
        for (; i < text_.size() && text_[i] != quote;) {
            if (text_[i] != '\\') {
                out += text_[i++];
                continue;
            }
            i = escape(i + 1, out);
            if (error_) return;
        }
        if (i >= text_.size()) return fail(fmt::format("unexpected char {} at {}", quote == '\'' ? "\"'\"" : "'\"'", at_));
        push(Token::Kind::string, std::move(out));
        advance_to(i + 1);
    }

    // Python's escapes in a string literal; i is after the backslash. The byte after the escape.
    size_t escape(size_t i, std::string& out) {
        static constexpr std::string_view kSpelled = "\\'\"abfnrtv";
        static constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
        const char c = char_at(i);
        if (i >= text_.size()) return i;
        if (c == '\n') return i + 1;
        if (const size_t simple = kSpelled.find(c); simple != std::string_view::npos) {
            out += kMeant[simple];
            return i + 1;
        }
        if (c >= '0' && c <= '7') {
            uint32_t value = 0;
            size_t end = i;
            while (end < i + 3 && char_at(end) >= '0' && char_at(end) <= '7')
                value = value * 8 + static_cast<uint32_t>(text_[end++] - '0');
            append_utf8(out, value);
            return end;
        }
        if (c == 'x' || c == 'u' || c == 'U') return hex_escape(i, out);
        if (c == 'N') {
            fail("the escape \\N{…} is not supported");
            return i;
        }
        if (static_cast<unsigned char>(c) < 0x80) {
            out += '\\';
            return i;
        }
        // Jinja spells the character out before Python decodes the escapes, so the backslash meets another one.
        const CodePoint point = decode_at(text_, i);
        const auto value = static_cast<uint32_t>(point.value);
        out += value < 0x100     ? fmt::format("\\x{:02x}", value)
               : value < 0x10000 ? fmt::format("\\u{:04x}", value)
                                 : fmt::format("\\U{:08x}", value);
        return i + point.bytes;
    }

    size_t hex_escape(size_t i, std::string& out) {
        const size_t n = text_[i] == 'x' ? 2 : text_[i] == 'u' ? 4 : 8;
        uint32_t value = 0;
        if (!read_hex(i + 1, n, value) || value > 0x10FFFF) {
            fail(fmt::format("truncated or invalid escape \\{} in a string", text_[i]));
            return i;
        }
        size_t end = i + 1 + n;
        uint32_t low = 0;
        if (value >= 0xD800 && value < 0xDC00 && text_.substr(end, 2) == "\\u" && read_hex(end + 2, 4, low) && low >= 0xDC00 &&
            low < 0xE000) {
            value = 0x10000 + ((value - 0xD800) << 10U) + (low - 0xDC00);
            end += 6;
        }
        append_utf8(out, value);
        return end;
    }

    bool read_hex(size_t begin, size_t n, uint32_t& value) const {
        if (begin + n > text_.size()) return false;
        const char* end = text_.data() + begin + n;
        const auto result = std::from_chars(text_.data() + begin, end, value, 16);
        return result.ptr == end && result.ec == std::errc();
    }

    std::string source_;
    std::string_view text_;
    size_t at_ = 0;
    int line_ = 1;
    bool at_line_start_ = true;
    std::vector<Token> tokens_;
    std::optional<TemplateError> error_;
};

}  // namespace

std::variant<std::vector<Token>, TemplateError> lex(std::string_view source) {
    return Lexer(source).run();
}

}  // namespace espalier::text::jinja
