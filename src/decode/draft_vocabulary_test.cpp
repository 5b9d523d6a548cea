#include "decode/draft_vocabulary.h"

#include <gtest/gtest.h>

#include <array>

namespace espalier::decode {
namespace {

using TokenId = cache::TokenId;

TEST(DraftVocabulary, SmallOnesAreWhole) {
    DraftVocabulary vocabulary(2 * DraftVocabulary::kFrequent);
    ASSERT_EQ(vocabulary.panels().size(), 1u);
    EXPECT_EQ(vocabulary.panels()[0].begin, 0);
    EXPECT_EQ(vocabulary.panels()[0].end, 2048);
    EXPECT_TRUE(vocabulary.contains(2 * DraftVocabulary::kFrequent - 1));
    EXPECT_FALSE(vocabulary.contains(2 * DraftVocabulary::kFrequent));
}

TEST(DraftVocabulary, FrequentIdsAndThoseOfTheTextAreChosen) {
    DraftVocabulary vocabulary(248'320);
    ASSERT_EQ(vocabulary.panels().size(), 1u);
    EXPECT_EQ(vocabulary.panels()[0].end, 1024);
    EXPECT_FALSE(vocabulary.contains(248'058));
    const std::array<TokenId, 6> text = {5, 16'384, 248'058, 248'059, 248'319, 100'000};
    vocabulary.add(text);
    for (const TokenId token : text) EXPECT_TRUE(vocabulary.contains(token)) << token;
    EXPECT_TRUE(vocabulary.contains(100'015)) << "of the same panel";
    EXPECT_FALSE(vocabulary.contains(100'016));
    const auto ranges = vocabulary.panels();
    ASSERT_EQ(ranges.size(), 4u);
    EXPECT_EQ(ranges[0].end, 1025) << "touching ranges are one";
    EXPECT_EQ(ranges[1].begin, 6250);
    EXPECT_EQ(ranges[2].begin, 15'503);
    EXPECT_EQ(ranges[2].end, 15'504);
    EXPECT_EQ(ranges[3].end, 15'520);
}

TEST(DraftVocabulary, IdsThatAreNoneAreIgnored) {
    DraftVocabulary vocabulary(100'000);
    const std::array<TokenId, 3> text = {-1, 100'000, 2'000'000'000};
    vocabulary.add(text);
    for (const TokenId token : text) EXPECT_FALSE(vocabulary.contains(token)) << token;
    EXPECT_EQ(vocabulary.panels().size(), 1u);
}

TEST(DraftVocabulary, ManyMissesBringAllRowsBackForATime) {
    DraftVocabulary vocabulary(248'320);
    const TokenId frequent = 7;
    for (TokenId token = 20'000; token < 20'100; token += 50) vocabulary.observe({&token, 1});
    EXPECT_GT(vocabulary.miss_rate(), DraftVocabulary::kMissesMax);
    ASSERT_EQ(vocabulary.panels().size(), 1u);
    EXPECT_EQ(vocabulary.panels()[0].end, 15'520);
    const TokenId known = 20'050;
    EXPECT_TRUE(vocabulary.contains(known)) << "a token is missed once";
    for (int i = 0; i < 100; ++i) vocabulary.observe({&frequent, 1});
    EXPECT_LT(vocabulary.miss_rate(), DraftVocabulary::kMissesMax);
    EXPECT_EQ(vocabulary.panels()[0].end, 1024);
}

}  // namespace
}  // namespace espalier::decode
