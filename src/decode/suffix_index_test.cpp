#include "decode/suffix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace espalier::decode {
namespace {

std::vector<TokenId> random_text(size_t n, int32_t alphabet, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> text(n);
    for (TokenId& token : text) token = static_cast<TokenId>(random() % static_cast<uint32_t>(alphabet));
    return text;
}

// Every place that agrees with the end of text + path, newest first, by comparing everything with everything.
std::vector<SuffixIndex::Match> all_matches(const std::vector<TokenId>& text, const std::vector<TokenId>& path) {
    std::vector<TokenId> context = text;
    context.insert(context.end(), path.begin(), path.end());
    std::vector<SuffixIndex::Match> matches;
    for (size_t next = text.size() - 1; next > 0; --next) {
        int32_t length = 0;
        while (static_cast<size_t>(length) < next && length < SuffixIndex::kLengthMax &&
               text[next - 1 - static_cast<size_t>(length)] == context[context.size() - 1 - static_cast<size_t>(length)])
            ++length;
        if (length >= SuffixIndex::kLengthMin) matches.push_back({static_cast<int32_t>(next), length});
    }
    return matches;
}

TEST(SuffixIndex, FindsWhatComparingEverythingFinds) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        const auto text = random_text(300, seed % 2 == 0 ? 12 : 40, seed);
        SuffixIndex index(300);
        // In pieces, as a reply grows.
        index.append(std::span(text).first(200));
        for (const TokenId token : std::span(text).subspan(200)) index.append({&token, 1});
        for (const size_t n_path : {0u, 1u, 3u}) {
            std::vector<TokenId> path(text.begin() + 50, text.begin() + 50 + static_cast<std::ptrdiff_t>(n_path));
            const auto expected = all_matches(text, path);
            std::array<SuffixIndex::Match, SuffixIndex::kMatchesMax> found;
            const int32_t n = index.find(path, found);
            ASSERT_EQ(static_cast<size_t>(n), expected.size()) << seed;
            for (size_t i = 0; i < expected.size(); ++i) {
                EXPECT_EQ(found[i].next, expected[i].next);
                EXPECT_EQ(found[i].length, expected[i].length);
            }
        }
    }
}

TEST(SuffixIndex, TheLongestMatchWinsAndSharesSumToOne) {
    // "1 2 3 4" was followed by 5 once, "3 4" by 6 twice.
    const std::vector<TokenId> text = {1, 2, 3, 4, 5, 9, 3, 4, 6, 8, 3, 4, 6, 7, 1, 2, 3, 4};
    SuffixIndex index(64);
    index.append(text);
    SuffixIndex::Candidates candidates;
    ASSERT_EQ(index.candidates({}, candidates), 2);
    EXPECT_EQ(candidates[0].token, 5);
    EXPECT_EQ(candidates[0].length, 4);
    EXPECT_EQ(candidates[0].count, 1);
    EXPECT_EQ(candidates[1].token, 6);
    EXPECT_EQ(candidates[1].length, 2);
    EXPECT_EQ(candidates[1].count, 2);
    EXPECT_FLOAT_EQ(candidates[0].share + candidates[1].share, 1.0f);
    const TokenId path[] = {5, 9};
    ASSERT_EQ(index.candidates(path, candidates), 1);
    EXPECT_EQ(candidates[0].token, 3) << "drafts are continued like committed text";
    EXPECT_EQ(candidates[0].length, 6);
}

TEST(SuffixIndex, AnOldLongMatchIsFoundBehindManyShortOnes) {
    std::vector<TokenId> text = {50, 51, 52, 53, 54, 7, 8, 99};
    for (int i = 0; i < 200; ++i) text.insert(text.end(), {60 + i % 3, 7, 8, 10 + i % 2});
    text.insert(text.end(), {50, 51, 52, 53, 54, 7, 8});
    SuffixIndex index(2000);
    index.append(text);
    SuffixIndex::Candidates candidates;
    const int32_t n = index.candidates({}, candidates);
    const auto old = std::find_if(candidates.begin(), candidates.begin() + n, [](const auto& c) { return c.token == 99; });
    ASSERT_NE(old, candidates.begin() + n);
    EXPECT_EQ(old->length, 7);
}

TEST(SuffixIndex, EmptyAndFullIndicesAnswer) {
    SuffixIndex::Candidates candidates;
    SuffixIndex empty(0);
    const TokenId text[] = {1, 2, 1, 2, 1, 2};
    empty.append(text);
    EXPECT_EQ(empty.size(), 0);
    EXPECT_EQ(empty.candidates(text, candidates), 0);
    SuffixIndex small(4);
    small.append(text);
    EXPECT_EQ(small.size(), 4) << "tokens beyond the capacity are left out";
    EXPECT_EQ(small.candidates({}, candidates), 1);
    EXPECT_EQ(candidates[0].token, 1);
}

}  // namespace
}  // namespace espalier::decode
