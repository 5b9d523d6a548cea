#include "text/output_parser_tags.h"

#include <algorithm>

#include "text/output_parser_symbols.h"

namespace espalier::text {
namespace {

constexpr size_t kNameBytesMax = 256;  // longer "names" are text; bounds the hold-back

TagMatch no_match() {
    return {};
}

TagMatch partial_match() {
    TagMatch match;
    match.fit = Fit::partial;
    return match;
}

// Blanks and one pair of quotes around a name are dropped.
std::string_view clean_name(std::string_view raw) {
    std::string_view name = trim_space(raw);
    if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'') && name.back() == name.front()) {
        name.remove_prefix(1);
        name.remove_suffix(1);
    }
    return trim_space(name);
}

// The end of `<word=` or `<word name=`.
TagMatch match_opening(std::string_view text, size_t pos, std::string_view word) {
    for (const std::string_view join : {std::string_view("="), std::string_view(" name=")}) {
        const std::string opening = std::string(word) + std::string(join);
        const Fit fit = match_literal(text, pos, opening);
        if (fit == Fit::partial) return partial_match();
        if (fit != Fit::yes) continue;
        TagMatch match;
        match.fit = Fit::yes;
        match.end = pos + opening.size();
        if (join.size() > 1) match.repair = "attribute_tag";
        return match;
    }
    return no_match();
}

// From `match.end` to what ends a name: ">" (taken), a line break, "<" or a marker (left), or "=" or ":" (taken) after a name for
// which `is_stop` says so.
template <class IsStop>
TagMatch match_name(std::string_view text, TagMatch match, IsStop is_stop) {
    const size_t begin = match.end;
    for (size_t pos = begin; pos < text.size(); ++pos) {
        const char c = text[pos];
        if (pos - begin > kNameBytesMax) return no_match();
        const bool is_end = c == '>' || c == '\n' || c == '<' || is_marker_symbol(c);
        const bool is_in_tag = !is_end && (c == '=' || c == ':') && is_stop(clean_name(text.substr(begin, pos - begin)));
        if (!is_end && !is_in_tag) continue;
        std::string_view raw = trim_space(text.substr(begin, pos - begin));
        if (c == '>' && !raw.empty() && raw.back() == '/') {
            match.is_self_closing = true;
            match.repair = "self_closing_tag";
            raw.remove_suffix(1);
        }
        match.name = clean_name(raw);
        if (match.name.empty()) return no_match();
        if (match.repair == nullptr && match.name != raw) match.repair = "quoted_name";
        if (c != '>') match.repair = "missing_tag_end";
        if (is_in_tag) match.repair = "value_in_tag";
        match.has_value_in_tag = is_in_tag;
        match.end = c == '>' || is_in_tag ? pos + 1 : pos;
        return match;
    }
    return text.size() - begin > kNameBytesMax ? no_match() : partial_match();
}

bool has_space(std::string_view name) {
    return std::any_of(name.begin(), name.end(), is_space);
}

TagMatch match_element_pair(std::string_view text, size_t pos) {
    constexpr std::string_view kOpen = "<function>";
    const Fit open = match_literal(text, pos, kOpen);
    if (open != Fit::yes) return open == Fit::partial ? partial_match() : no_match();
    const size_t begin = pos + kOpen.size();
    const size_t name_end = std::min(text.find('<', begin), text.size());
    if (name_end - begin > kNameBytesMax) return no_match();
    if (name_end == text.size()) return partial_match();
    constexpr std::string_view kClose = "</function>";
    const Fit close = match_literal(text, name_end, kClose);
    if (close != Fit::yes) return close == Fit::partial ? partial_match() : no_match();
    TagMatch match;
    match.name = clean_name(text.substr(begin, name_end - begin));
    if (match.name.empty() || has_space(match.name)) return no_match();
    match.fit = Fit::yes;
    match.end = name_end + kClose.size();
    match.repair = "function_element";
    match.is_element_pair = true;
    return match;
}

}  // namespace

Fit match_literal(std::string_view text, size_t pos, std::string_view literal) {
    const std::string_view at = text.substr(std::min(pos, text.size()), literal.size());
    if (at == literal) return Fit::yes;
    return at == literal.substr(0, at.size()) ? Fit::partial : Fit::no;
}

TagMatch match_function_header(std::string_view text, size_t pos, const DeclaredTools& tools, bool in_wrapper) {
    TagMatch match = match_opening(text, pos, "<function");
    if (match.fit == Fit::no) return in_wrapper ? match_element_pair(text, pos) : match;
    if (match.fit == Fit::partial) return match;
    match = match_name(text, std::move(match), [](std::string_view) { return false; });
    if (match.fit != Fit::yes) return match;
    const bool is_declared = tools.find(match.name) != nullptr;
    return is_declared || (in_wrapper && !has_space(match.name)) ? match : no_match();
}

TagMatch match_parameter_header(std::string_view text, size_t pos, const DeclaredTool* tool) {
    TagMatch match = match_opening(text, pos, "<parameter");
    if (match.fit != Fit::yes) return match;
    return match_name(text, std::move(match), [&](std::string_view key) { return tool != nullptr && tool->has_parameter(key); });
}

TagMatch match_element(std::string_view text, size_t pos, const DeclaredTool* tool) {
    if (tool == nullptr || pos >= text.size() || text[pos] != '<') return no_match();
    TagMatch match;
    match.fit = Fit::yes;
    match.end = pos + 1;
    match = match_name(text, std::move(match), [](std::string_view) { return false; });
    if (match.fit != Fit::yes) return match;
    const bool is_plain = match.repair == nullptr && text[match.end - 1] == '>';
    if (!is_plain || !tool->has_parameter(match.name)) return no_match();
    match.repair = "parameter_element";
    return match;
}

}  // namespace espalier::text
