#define PCRE2_CODE_UNIT_WIDTH 8
#include "bench/bfcl/pattern.h"

#include <pcre2.h>

#include "base/check.h"

namespace espalier::bench {

struct Pattern::Code {
    explicit Code(pcre2_code* compiled) : code(compiled) {}
    ~Code() { pcre2_code_free(code); }
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
    pcre2_code* code;
};

Pattern::Pattern(const char* expression, Dot dot) {
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | (dot == Dot::any ? PCRE2_DOTALL : 0);
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED, options, &error, &offset, context);
    pcre2_compile_context_free(context);
    CHECK(code != nullptr, "the expression is not valid");
    code_ = std::make_shared<const Code>(code);
}

std::optional<Match> Pattern::run(std::string_view text, size_t from, uint32_t options) const {
    pcre2_match_data* data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
    const int n_groups =
        pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, data, nullptr);
    std::optional<Match> match;
    if (n_groups > 0) {
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
        match.emplace();
        match->begin = ends[0];
        match->end = ends[1];
        for (int i = 0; i < n_groups; ++i) {
            if (ends[2 * i] == PCRE2_UNSET) match->groups.emplace_back();
            else match->groups.emplace_back(text.substr(ends[2 * i], ends[2 * i + 1] - ends[2 * i]));
        }
    }
    pcre2_match_data_free(data);
    return match;
}

std::optional<Match> Pattern::search(std::string_view text, size_t from) const {
    return run(text, from, 0);
}

std::optional<Match> Pattern::match_start(std::string_view text) const {
    return run(text, 0, PCRE2_ANCHORED);
}

std::vector<Match> Pattern::find_all(std::string_view text) const {
    std::vector<Match> matches;
    size_t from = 0;
    while (from <= text.size()) {
        std::optional<Match> match = search(text, from);
        if (!match) break;
        from = match->end > match->begin ? match->end : match->end + 1;
        matches.push_back(*std::move(match));
    }
    return matches;
}

}  // namespace espalier::bench
