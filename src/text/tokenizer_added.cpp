#include "text/tokenizer_added.h"

#include <utf8proc.h>

#include "text/tokenizer_utf8.h"

namespace espalier::text {
namespace {

bool is_white_space(char32_t c) {
    return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// \w of the reference: alphabetic, marks, decimal digits, connector punctuation, joiners.
bool is_word_character(char32_t c) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default: break;
    }
    // Joiners, and the symbols that Unicode lists as alphabetic (circled and squared letters).
    return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

char32_t code_point_at(std::string_view text, size_t at, size_t& n_bytes) {
    return decode_utf8(text.data() + at, n_bytes);
}

// The start of the code point that ends at `end` (end > 0).
size_t code_point_before(std::string_view text, size_t end) {
    size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
}

}  // namespace

void AddedTokenFinder::add(const AddedTokenRule& rule, std::string_view text) {
    if (text.empty()) return;
    is_first_[static_cast<unsigned char>(text[0])] = true;
    uint32_t node = 0;
    for (const char byte : text) {
        const auto [found, is_new] = children_.try_emplace(edge(node, byte), static_cast<uint32_t>(rules_.size()));
        if (is_new) rules_.push_back(nullptr);
        node = found->second;
    }
    if (rules_[node] == nullptr) rules_[node] = &rule;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, size_t from) const {
    for (size_t begin = from; begin < text.size(); ++begin) {
        if (!is_first_[static_cast<unsigned char>(text[begin])]) continue;
        Match longest;
        uint32_t node = 0;
        for (size_t at = begin; at < text.size(); ++at) {
            const auto child = children_.find(edge(node, text[at]));
            if (child == children_.end()) break;
            node = child->second;
            if (rules_[node] != nullptr) longest = {begin, at + 1, rules_[node]};
        }
        if (longest.rule != nullptr) return longest;
    }
    return {text.size(), text.size(), nullptr};
}

AddedSpan apply_flags(const AddedTokenFinder::Match& match, std::string_view text, size_t floor) {
    AddedSpan span{true, match.begin, match.end};
    size_t n_bytes = 0;
    if (match.rule->is_single_word) {
        const bool joins_left =
            span.begin > 0 && is_word_character(code_point_at(text, code_point_before(text, span.begin), n_bytes));
        const bool joins_right = span.end < text.size() && is_word_character(code_point_at(text, span.end, n_bytes));
        if (joins_left || joins_right) return {};
    }
    while (match.rule->takes_left_space && span.begin > floor) {
        const size_t before = code_point_before(text, span.begin);
        if (!is_white_space(code_point_at(text, before, n_bytes))) break;
        span.begin = before;
    }
    while (match.rule->takes_right_space && span.end < text.size()) {
        if (!is_white_space(code_point_at(text, span.end, n_bytes))) break;
        span.end += n_bytes;
    }
    return span;
}

}  // namespace espalier::text
