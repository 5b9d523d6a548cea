#include "cache/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cache/test_timeline.h"

namespace espalier::cache {
namespace {

using ::testing::ElementsAre;

class PrefixTreeTest : public ::testing::Test {
protected:
    PrefixTreeTest() : memory_(std::move(*Memory::create(testing::timeline_shape(), {64, 48}))), tree_(memory_, 1 << 20) {}

    static std::vector<TokenId> ids(int32_t n, TokenId first = 0) {
        std::vector<TokenId> result(static_cast<size_t>(n));
        std::iota(result.begin(), result.end(), first);
        return result;
    }
    static std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
        a.insert(a.end(), b.begin(), b.end());
        return a;
    }
    Sequence sequence(const std::vector<TokenId>& tokens) {
        Sequence result = std::move(*Sequence::create(memory_, 1024));
        testing::grow(result, tokens);
        return result;
    }
    void keep(const std::vector<TokenId>& tokens, PointKind kind = PointKind::tool_boundary, const CacheKey& key = {}) {
        tree_.keep(key, sequence(tokens), kind, ++now_);
    }
    int32_t cached(const std::vector<TokenId>& prompt, const CacheKey& key = {}) { return tree_.match(key, prompt).cached; }
    std::vector<int32_t> lost_in_order(const PrefixTree::VictimRules& rules = {}) {
        std::vector<int32_t> lengths;
        while (const PrefixTree::Node* victim = tree_.find_victim(rules, now_)) {
            lengths.push_back(PrefixTree::length(*victim));
            tree_.drop(*victim);
        }
        return lengths;
    }

    Memory memory_;
    PrefixTree tree_;
    int64_t now_ = 0;
};

TEST_F(PrefixTreeTest, TheDeepestTruePrefixIsTheHit) {
    keep(ids(70));
    keep(ids(100));
    keep(joined(ids(80), ids(20, 500)));
    EXPECT_EQ(cached(ids(150)), 100);
    EXPECT_EQ(cached(ids(100)), 100) << "the whole prompt can be a hit";
    EXPECT_EQ(cached(ids(99)), 70);
    EXPECT_EQ(cached(joined(ids(80), ids(30, 500))), 100);
    EXPECT_EQ(cached(joined(ids(80), ids(30, 600))), 70);
    EXPECT_EQ(cached(joined(ids(69), ids(5, 600))), 0);
    EXPECT_EQ(cached({}), 0);
    const auto match = tree_.match({}, ids(120));
    Sequence restored = tree_.fork(*match.node, 1024);
    EXPECT_TRUE(testing::holds(restored, ids(100)));
}

TEST_F(PrefixTreeTest, GoingOnFromAHitChangesNothingThatIsKept) {
    keep(ids(70));
    const auto node = tree_.match({}, ids(90)).node;
    Sequence a = tree_.fork(*node, 1024);
    Sequence b = tree_.fork(*node, 1024);
    testing::grow(a, ids(30, 900));
    testing::grow(b, ids(30, 950));
    EXPECT_TRUE(testing::holds(a, joined(ids(70), ids(30, 900))));
    EXPECT_TRUE(testing::holds(b, joined(ids(70), ids(30, 950))));
    Sequence again = tree_.fork(*node, 1024);
    EXPECT_TRUE(testing::holds(again, ids(70)));
}

TEST_F(PrefixTreeTest, NothingIsFoundAcrossOwnersAndSalts) {
    keep(ids(70), PointKind::tool_boundary, {"a", ""});
    EXPECT_EQ(cached(ids(80), {"a", ""}), 70);
    EXPECT_EQ(cached(ids(80), {"b", ""}), 0);
    EXPECT_EQ(cached(ids(80), {"a", "s"}), 0);
    EXPECT_EQ(cached(ids(80), {"", "a"}), 0);
    EXPECT_EQ(tree_.match({"b", ""}, ids(80)).known, 0);
}

TEST_F(PrefixTreeTest, AShorterSnapshotOutlivesALongerOneOnAnotherBranch) {
    keep(ids(70));
    keep(joined(ids(60), ids(60, 500)));
    tree_.drop(*tree_.find({}, joined(ids(60), ids(60, 500))));
    EXPECT_EQ(cached(ids(80)), 70);
}

TEST_F(PrefixTreeTest, SharedPagesCountOnce) {
    const auto page = static_cast<int64_t>(memory_.pages().slot_bytes());
    const auto state = static_cast<int64_t>(memory_.states().slot_bytes());
    {
        Sequence growing = sequence(ids(128));
        tree_.keep({"a", ""}, growing, PointKind::tool_boundary, 1);
        testing::grow(growing, ids(10, 128));
        tree_.keep({"a", ""}, growing, PointKind::prompt_end, 2);
        EXPECT_FALSE(tree_.keep({"a", ""}, growing, PointKind::tool_boundary, 3)) << "the same ids are kept once";
    }
    EXPECT_EQ(tree_.owner_bytes("a"), 3 * page + 2 * state);
    EXPECT_EQ(tree_.gauges().page_bytes, 3 * page);
    EXPECT_EQ(tree_.gauges().state_bytes, 2 * state);
    EXPECT_EQ(memory_.pages().n_slots() - memory_.pages().n_free(), 3);
    tree_.drop(*tree_.find({"a", ""}, ids(128)));
    EXPECT_EQ(tree_.owner_bytes("a"), 3 * page + state);
    tree_.drop(*tree_.find({"a", ""}, ids(138)));
    EXPECT_EQ(tree_.owner_bytes("a"), 0);
    EXPECT_EQ(memory_.pages().n_free(), memory_.pages().n_slots());
    EXPECT_EQ(memory_.states().n_free(), memory_.states().n_slots());
}

TEST_F(PrefixTreeTest, TailsAreTheLastToGo) {
    // One conversation: question at 20, turns at 40, 60, 80, prompts a little longer; a ladder point and a junction.
    keep(ids(10), PointKind::message_end);
    keep(ids(20), PointKind::user_boundary);
    keep(ids(30), PointKind::ladder);
    for (const int32_t turn : {40, 60, 80}) {
        keep(ids(turn), PointKind::tool_boundary);
        keep(joined(ids(turn), {999}), PointKind::prompt_end);
    }
    tree_.touch({}, ids(85), ++now_);
    // The two old prompt ends lie on branches of their own, so nothing says that they are superseded.
    EXPECT_THAT(lost_in_order(), ElementsAre(30, 40, 41, 61, 81, 60, 10, 20, 80));
}

TEST_F(PrefixTreeTest, ColdConversationsGoFirst) {
    keep(ids(40), PointKind::tool_boundary);
    now_ += 2 * 3'600'000;
    keep(ids(50, 500), PointKind::tool_boundary);
    keep(ids(60, 500), PointKind::prompt_end);
    EXPECT_THAT(lost_in_order(), ElementsAre(40, 60, 50));
}

TEST_F(PrefixTreeTest, WhoHoldsMoreThanItsShareLosesFirst) {
    for (int32_t i = 0; i < 6; ++i) keep(ids(40, 100 * i), PointKind::tool_boundary, {"flood", std::to_string(i)});
    keep(ids(50), PointKind::prompt_end, {"small", ""});
    PrefixTree::VictimRules rules;
    rules.owner = "flood";
    EXPECT_EQ(PrefixTree::key(*tree_.find_victim(rules, now_)).owner, "flood") << "not the other's, though of lower rank";
    rules.owner = "small";
    EXPECT_EQ(PrefixTree::key(*tree_.find_victim(rules, now_)).owner, "flood");
    rules.owner = "new";
    EXPECT_EQ(PrefixTree::key(*tree_.find_victim(rules, now_)).owner, "flood");
    rules.owner = "flood";
    rules.need = PrefixTree::Need::optional;
    for (int32_t i = 0; i < 6; ++i) {
        const PrefixTree::Node* victim = tree_.find_victim(rules, now_);
        ASSERT_NE(victim, nullptr);
        EXPECT_EQ(PrefixTree::key(*victim).owner, "flood") << i;
        tree_.drop(*victim);
    }
}

TEST_F(PrefixTreeTest, SparedAndHigherRanksAreNotTaken) {
    keep(ids(40), PointKind::prompt_end);
    keep(ids(50), PointKind::tool_boundary);
    PrefixTree::VictimRules rules;
    rules.spared = tree_.find({}, ids(40));
    rules.rank_max = 3;
    EXPECT_EQ(tree_.find_victim(rules, now_), nullptr);
    rules.rank_max = kRankProtected;
    EXPECT_EQ(PrefixTree::length(*tree_.find_victim(rules, now_)), 50);
}

TEST_F(PrefixTreeTest, SaysWhereAPromptLeavesWhatIsKnown) {
    keep(ids(40), PointKind::tool_boundary);
    keep(ids(90), PointKind::prompt_end);
    tree_.remember({}, ids(90), PrefixTree::Mark::prompt_end, ++now_);
    const auto match = tree_.match({}, joined(ids(60), {7, 8}));
    EXPECT_EQ(match.cached, 40);
    EXPECT_EQ(match.known, 60);
    EXPECT_EQ(match.deepest, 90);
    ASSERT_EQ(match.goes_on.size(), size_t{PrefixTree::kGoesOnTokens});
    EXPECT_EQ(match.goes_on.front(), 60);
    tree_.drop(*tree_.find({}, ids(40)));
    tree_.drop(*tree_.find({}, ids(90)));
    const auto forgotten = tree_.match({}, ids(95));
    EXPECT_EQ(forgotten.cached, 0);
    EXPECT_EQ(forgotten.known, 90) << "bare ids stay";
    EXPECT_TRUE(forgotten.goes_on.empty());
}

TEST_F(PrefixTreeTest, NoticesAReplyThatComesBackAsItWas) {
    keep(ids(40), PointKind::tool_boundary);
    tree_.remember({}, ids(60), PrefixTree::Mark::reply_end, ++now_);
    EXPECT_FALSE(tree_.match({}, joined(ids(59), ids(5, 500))).has_echo);
    EXPECT_TRUE(tree_.match({}, joined(ids(60), ids(5, 500))).has_echo);
    keep(ids(60), PointKind::reply_end);
    EXPECT_TRUE(tree_.match({}, joined(ids(60), ids(5, 500))).has_echo);
    keep(joined(ids(60), ids(5, 500)), PointKind::tool_boundary);
    EXPECT_FALSE(tree_.match({}, joined(joined(ids(60), ids(5, 500)), {1, 2, 3})).has_echo) << "the last reply did not come back";
}

TEST_F(PrefixTreeTest, BareIdsAreBounded) {
    PrefixTree tree(memory_, 20'000);
    for (int32_t i = 0; i < 2000; ++i) {
        tree.remember({"a", std::to_string(i % 7)}, joined({i % 13}, ids(20, 1000 * i)), PrefixTree::Mark::reply_end, i);
        ASSERT_LE(tree.gauges().index_bytes, 20'000);
    }
    EXPECT_GT(tree.gauges().nodes, 10);
    const auto last = tree.match({"a", std::to_string(1999 % 7)}, joined({1999 % 13}, ids(20, 1000 * 1999)));
    EXPECT_EQ(last.known, 21) << "those used last stay";
}

TEST_F(PrefixTreeTest, AnEmptyTreeHoldsNothing) {
    for (int32_t i = 0; i < 5; ++i) keep(joined(ids(10 * i + 5), ids(20, 600 + i)));
    while (!tree_.snapshots().empty()) tree_.drop(*tree_.snapshots().front());
    EXPECT_EQ(memory_.pages().n_free(), memory_.pages().n_slots());
    EXPECT_EQ(tree_.gauges().snapshots, 0);
    PrefixTree pruned(memory_, 0);
    pruned.remember({}, ids(50), PrefixTree::Mark::reply_end, 0);
    EXPECT_EQ(pruned.gauges().nodes, 0);
    EXPECT_EQ(pruned.gauges().index_bytes, 0);
}

}  // namespace
}  // namespace espalier::cache
