// Finds added tokens ("<|im_start|>", "<think>") in text: leftmost first, the longest at one place, not overlapping.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_file.h"

namespace espalier::text {

class AddedTokenFinder {
public:
    struct Match {
        size_t begin = 0;
        size_t end = 0;
        const AddedTokenRule* rule = nullptr;  // null: nothing found; begin and end are the text's end
    };

    // Of two rules with the same text the first counts. The rules must outlive the finder.
    void add(const AddedTokenRule& rule, std::string_view text);

    bool is_empty() const { return rules_.size() <= 1 && children_.empty(); }

    // The first match at or after `from`, by text alone: flags are not looked at.
    Match find(std::string_view text, size_t from) const;

private:
    static uint64_t edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<unsigned char>(byte); }

    bool is_first_[256] = {};
    std::unordered_map<uint64_t, uint32_t> children_;       // byte trie: (node, byte) to node; node 0 is the root
    std::vector<const AddedTokenRule*> rules_ = {nullptr};  // by node; null: no token ends here
};

// Where a match really begins and ends once the rule's flags are applied.
struct AddedSpan {
    bool is_taken = false;  // false: the match is plain text after all
    size_t begin = 0;
    size_t end = 0;
};

// `floor` is the end of the match before: spaces to the left are taken only up to there.
AddedSpan apply_flags(const AddedTokenFinder::Match& match, std::string_view text, size_t floor);

}  // namespace espalier::text
