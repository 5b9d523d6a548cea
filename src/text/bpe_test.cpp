#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "text/bpe_queue.h"
#include "text/tokenizer_test_data.h"

namespace espalier::text::testing {
namespace {

using Ids = std::vector<TokenId>;

// The bytes as tokens 0..255, then one token per merge; merges over the letters a to d, in an order that need not be learnable.
BpeSource random_source(std::mt19937& random, int n_merges) {
    BpeSource source;
    const Json vocab = small_file().at("model").at("vocab");
    std::vector<std::string> parts = {"a", "b", "c", "d"};
    std::map<std::string, TokenId> ids;
    for (const auto& [name, id] : vocab.items()) {
        if (id.get<TokenId>() >= 256) continue;
        source.token_names.append(name);
        source.token_ids.push_back(id.get<TokenId>());
        ids[name] = id.get<TokenId>();
    }
    std::vector<std::pair<std::string, std::string>> merges;
    while (static_cast<int>(merges.size()) < n_merges) {
        const std::string left = parts[random() % parts.size()];
        const std::string right = parts[random() % parts.size()];
        const std::string joined = left + right;
        if (joined.size() > 12 || std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end()) continue;
        merges.emplace_back(left, right);
        if (ids.count(joined) > 0) continue;
        ids[joined] = static_cast<TokenId>(256 + source.token_ids.size());
        source.token_names.append(joined);
        source.token_ids.push_back(ids[joined]);
        parts.push_back(joined);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    for (const auto& [left, right] : merges) {
        source.merge_parts.append(left);
        source.merge_parts.append(right);
    }
    return source;
}

// The definition, word for word: lowest rank first, leftmost first, one merge at a time.
std::vector<std::string> merged_by_definition(const BpeSource& source, const std::string& piece) {
    std::map<std::pair<std::string_view, std::string_view>, size_t> ranks;
    for (size_t i = 0; i < source.merge_parts.size(); i += 2) ranks[{source.merge_parts[i], source.merge_parts[i + 1]}] = i;
    std::vector<std::string> parts;
    for (const char c : piece) parts.emplace_back(1, c);
    while (true) {
        size_t best_rank = SIZE_MAX;
        size_t best = 0;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto found = ranks.find({parts[i], parts[i + 1]});
            if (found == ranks.end() || found->second >= best_rank) continue;
            best_rank = found->second;
            best = i;
        }
        if (best_rank == SIZE_MAX) return parts;
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

TEST(Bpe, short_and_long_pieces_follow_the_definition) {
    std::mt19937 random(7);
    for (int round = 0; round < 40; ++round) {
        const BpeSource source = random_source(random, 5 + static_cast<int>(random() % 600));
        auto bpe = Bpe::build(source);
        ASSERT_TRUE(bpe) << bpe.error().message;
        for (int trial = 0; trial < 12; ++trial) {
            const size_t n = trial % 3 == 0 ? 1 + random() % 8 : trial % 3 == 1 ? 40 + random() % 20 : 100 + random() % 200;
            std::string piece;
            while (piece.size() < n) piece += static_cast<char>('a' + random() % (trial % 2 == 0 ? 2 : 4));
            Ids ids;
            bpe->encode(piece, ids);
            std::vector<std::string> parts;
            for (const TokenId id : ids) parts.emplace_back(bpe->token_bytes(id));
            EXPECT_EQ(parts, merged_by_definition(source, piece)) << piece;
        }
    }
}

TEST(Bpe, a_token_that_no_merge_reaches_is_not_used_unless_merges_are_ignored) {
    Json file = small_file();
    file["model"]["vocab"]["xyz"] = 258;
    EXPECT_EQ(valid(Tokenizer::parse(file.dump()))->encode("xyz"), (Ids{'x', 'y', 'z'}));
    file["model"]["ignore_merges"] = true;
    EXPECT_EQ(valid(Tokenizer::parse(file.dump()))->encode("xyz"), Ids{258});
}

TEST(Bpe, an_empty_piece_gives_nothing) {
    std::mt19937 random(1);
    auto bpe = Bpe::build(random_source(random, 5));
    ASSERT_TRUE(bpe);
    Ids ids;
    bpe->encode("", ids);
    EXPECT_TRUE(ids.empty());
}

TEST(MergeQueue, gives_the_lowest_rank_and_position_whatever_the_order_of_pushes) {
    std::mt19937 random(3);
    constexpr uint32_t kRanks = 5000;
    MergeQueue queue(kRanks);
    std::vector<std::pair<uint32_t, uint32_t>> expected;
    for (int step = 0; step < 20000; ++step) {
        if (random() % 3 != 0) {
            // Now and then far below what has been read already.
            const MergeQueue::Entry entry{static_cast<uint32_t>(random() % kRanks), static_cast<uint32_t>(random() % 1000)};
            queue.push(entry);
            expected.emplace_back(entry.rank, entry.position);
            std::push_heap(expected.begin(), expected.end(), std::greater<>());
            continue;
        }
        MergeQueue::Entry entry;
        ASSERT_EQ(queue.pop(entry), !expected.empty());
        if (expected.empty()) continue;
        EXPECT_EQ(std::pair(entry.rank, entry.position), expected.front());
        std::pop_heap(expected.begin(), expected.end(), std::greater<>());
        expected.pop_back();
    }
}

}  // namespace
}  // namespace espalier::text::testing
