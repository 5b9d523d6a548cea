// Where the last tokens have occurred before in the same conversation, and what followed: text that agents write is mostly made
// of text they have read. Gives the scores of SuffixDecoding (arXiv 2411.04975) without its trees.
//
// For every pair of tokens, a chain of the positions behind its occurrences, newest first; appending is O(1). A query walks the
// chain of the context's last pair and measures how far each match reaches back. As the context is any string of tokens, drafts
// of other sources are continued too.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/sampler.h"

namespace espalier::decode {

class SuffixIndex {
public:
    static constexpr int32_t kLengthMax = 64;   // of a match; longer ones say no more
    static constexpr int32_t kMatchesMax = 96;  // of a query: the newest, and long ones found through rarer strings
    static constexpr int32_t kLengthMin = 2;

    // Room for this many tokens; further ones are not indexed.
    explicit SuffixIndex(int32_t tokens_max);

    void append(std::span<const TokenId> tokens);
    int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
    TokenId token(int32_t position) const { return tokens_[static_cast<size_t>(position)]; }

    // tokens [next - length, next) equal the end of the context; token(next) is what followed.
    struct Match {
        int32_t next = 0;
        int32_t length = 0;
    };
    // Matches of the indexed text followed by `path`, newest first. Returns how many.
    int32_t find(std::span<const TokenId> path, std::span<Match, kMatchesMax> out) const;

    // What the matches say comes next.
    struct Candidate {
        TokenId token = 0;
        float share = 0;     // of the matches' weight
        int32_t length = 0;  // of the longest match for it
        int32_t count = 0;   // matches for it
    };
    static constexpr int32_t kCandidatesMax = 4;
    using Candidates = std::array<Candidate, kCandidatesMax>;
    // The candidates with the largest shares, best first. Returns how many.
    int32_t candidates(std::span<const TokenId> path, Candidates& out) const;

private:
    // The chain of strings of one length.
    struct Chain {
        int32_t order = 0;
        std::vector<int32_t> heads;  // by hash: position behind the newest occurrence, -1 = none
        std::vector<int32_t> prev;   // by that position: the one before
    };
    size_t slot(const Chain& chain, uint64_t hash) const { return hash >> 32 & (chain.heads.size() - 1); }
    void walk(const Chain& chain, std::span<const TokenId> path, int32_t steps_max, std::span<Match, kMatchesMax> out,
              int32_t& n) const;
    // The i-th last token of the context.
    TokenId context(std::span<const TokenId> path, int32_t i) const {
        const auto n_path = static_cast<int32_t>(path.size());
        return i < n_path ? path[static_cast<size_t>(n_path - 1 - i)] : token(size() - 1 - (i - n_path));
    }

    std::vector<TokenId> tokens_;
    Chain rare_;    // longer strings: their occurrences are few, so old ones are still found
    Chain common_;  // the shortest
};

}  // namespace espalier::decode
