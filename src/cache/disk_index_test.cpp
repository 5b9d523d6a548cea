#include "cache/disk_index.h"

#include <gtest/gtest.h>

#include <numeric>

namespace espalier::cache {
namespace {

std::vector<TokenId> tokens_of(size_t n, TokenId first) {
    std::vector<TokenId> tokens(n);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
}

class DiskIndexTest : public ::testing::Test {
protected:
    void add(uint64_t id, const std::vector<TokenId>& tokens, uint64_t owner) {
        const DiskKey key{{owner, 0}, {owner, 1}};
        index_.add(id, tokens, key, index_.plan(tokens, 0, key), 8192, static_cast<int64_t>(id), PointKind::tool_boundary);
    }
    DiskIndex index_{DiskIdentity{}, 4096, 4096, true};
};

TEST_F(DiskIndexTest, OnlyWhatIsWrittenGoesEvenIfItsOwnerHoldsLittle) {
    add(1, tokens_of(64, 0), 7);
    index_.set_written(1);
    for (uint64_t id = 2; id < 6; ++id) add(id, tokens_of(640, static_cast<TokenId>(1000 * id)), 8);
    // All that the loud owner has waits for the writer: the cap holds all the same.
    const auto removal = index_.evict_one(index_.bytes() / 2);
    ASSERT_TRUE(removal.has_value());
    EXPECT_EQ(removal->files.front(), state_file_name(removal->conversation, 1));
    EXPECT_FALSE(index_.evict_one(1).has_value()) << "the rest waits";
    index_.set_written(4);
    add(6, tokens_of(64, 0), 7);
    index_.set_written(6);
    EXPECT_EQ(index_.evict_one(index_.bytes() / 2)->files.front().substr(17), state_file_name(0, 4).substr(17));
}

TEST_F(DiskIndexTest, FindsEverythingThatAPromptBeginsWith) {
    const auto all = tokens_of(300, 0);
    const std::vector<TokenId> first(all.begin(), all.begin() + 100);
    auto other = all;
    other[50] = 9999;
    add(1, all, 7);
    add(2, first, 7);
    add(3, other, 7);
    add(4, first, 8);
    std::vector<uint64_t> ids;
    for (const DiskIndex::Entry* entry : index_.find_prefixes(all, {{7, 0}, {7, 1}})) ids.push_back(entry->id);
    EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2}));
}

}  // namespace
}  // namespace espalier::cache
