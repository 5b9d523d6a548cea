#include "text/pretokenize_pattern.h"

#include <fmt/format.h>

namespace espalier::text {
namespace {

// Unicode White_Space. PCRE2's own \s also takes U+180E.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
// PCRE2's own \w lacks marks and connector punctuation.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Escaped letters that mean the same in both engines.
constexpr std::string_view kSameLetters = "dDtnrfae";
constexpr size_t kGeneralCategoryBytesMax = 2;  // "L", "Lu"; longer names are scripts

class Translator {
public:
    explicit Translator(std::string_view pattern) : pattern_(pattern) {}

    Result<std::string> run() {
        while (at_ < pattern_.size()) {
            TRY(in_class_ ? class_item() : item());
        }
        return std::move(out_);
    }

private:
    Error refused(std::string_view what) const {
        return unsupported(
            fmt::format("{} at byte {} is not supported (it means different things in different regex engines)", what, at_));
    }
    bool starts_with(std::string_view prefix) const { return pattern_.substr(at_).starts_with(prefix); }
    void copy(size_t n_bytes) {
        out_ += pattern_.substr(at_, n_bytes);
        at_ += n_bytes;
    }

    Status item() {
        const char c = pattern_[at_];
        if (c == '\\') return escape();
        if (c == '^' || c == '$') return refused(fmt::format("anchor '{}'", c));
        if (c == '(') return group();
        if (c == '[') return open_class();
        copy(1);
        return {};
    }

    Status group() {
        if (starts_with("(*")) return refused("'(*'");
        if (!starts_with("(?")) {
            copy(1);
            return {};
        }
        for (const std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?i)"}) {
            if (starts_with(known)) {
                copy(known.size());
                return {};
            }
        }
        return refused(fmt::format("group '{}'", pattern_.substr(at_, 3)));
    }

    Status open_class() {
        in_class_ = true;
        copy(starts_with("[^") ? 2 : 1);
        if (starts_with("]")) return refused("']' as the first member of a class");
        return {};
    }

    Status class_item() {
        const char c = pattern_[at_];
        if (c == '\\') return escape();
        if (c == '[') return refused("'[' inside a class");
        if (starts_with("&&")) return refused("'&&' inside a class");
        if (c == ']') in_class_ = false;
        copy(1);
        return {};
    }

    Status escape() {
        if (at_ + 1 == pattern_.size()) return refused("'\\' at the end");
        const char c = pattern_[at_ + 1];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        const bool is_digit = c >= '0' && c <= '9';
        if (c == 's' || c == 'S') return named_class(kSpace, c == 'S');
        if (c == 'w' || c == 'W') return named_class(kWord, c == 'W');
        if (c == 'p' || c == 'P') return property();
        if (is_digit || (is_letter && kSameLetters.find(c) == std::string_view::npos && c != 'x')) {
            return refused(fmt::format("escape '\\{}'", c));
        }
        copy(2);
        return {};
    }

    Status named_class(std::string_view members, bool is_negated) {
        if (in_class_ && is_negated) return refused(fmt::format("escape '{}' inside a class", pattern_.substr(at_, 2)));
        out_ += in_class_ ? std::string(members) : fmt::format("[{}{}]", is_negated ? "^" : "", members);
        at_ += 2;
        return {};
    }

    // \pL, \p{L}, \p{Lu}, \p{Han}. PCRE2 reads a bare script name as "script or extension", Oniguruma as script.
    Status property() {
        if (at_ + 2 == pattern_.size()) return refused("'\\p' at the end");
        if (pattern_[at_ + 2] != '{') {
            copy(3);
            return {};
        }
        const size_t close = pattern_.find('}', at_);
        if (close == std::string_view::npos) return refused("'\\p{' without '}'");
        const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
        const size_t sign = name.starts_with("^") ? 1 : 0;
        const bool is_script = name.size() - sign > kGeneralCategoryBytesMax;
        out_ +=
            fmt::format("{}{{{}{}{}}}", pattern_.substr(at_, 2), name.substr(0, sign), is_script ? "sc:" : "", name.substr(sign));
        at_ = close + 1;
        return {};
    }

    std::string_view pattern_;
    std::string out_;
    size_t at_ = 0;
    bool in_class_ = false;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
    return Translator(pattern).run();
}

}  // namespace espalier::text
