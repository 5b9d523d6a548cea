// A compiled regular expression (PCRE2, UTF-8) with the two ways of matching that the reference scorer uses.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::bench {

// group 0 is the whole match; a group that took no part is nullopt. Views into the searched text.
struct Match {
    size_t begin = 0;
    size_t end = 0;
    std::vector<std::optional<std::string_view>> groups;
    std::string_view group(size_t index) const {
        return index < groups.size() && groups[index] ? *groups[index] : std::string_view();
    }
};

class Pattern {
public:
    enum class Dot { any_but_line_feed, any };

    // The expression is ours, so a mistake in it is a bug.
    explicit Pattern(const char* expression, Dot dot = Dot::any_but_line_feed);

    // Leftmost match at or after `from` (re.search); a match that would exceed PCRE2's limits counts as none.
    std::optional<Match> search(std::string_view text, size_t from = 0) const;
    // A match that begins at the start of the text (re.match).
    std::optional<Match> match_start(std::string_view text) const;
    // All matches, none overlapping (re.finditer).
    std::vector<Match> find_all(std::string_view text) const;

private:
    std::optional<Match> run(std::string_view text, size_t from, uint32_t options) const;

    struct Code;
    std::shared_ptr<const Code> code_;
};

}  // namespace espalier::bench
