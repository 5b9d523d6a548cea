#include "model/pass.h"

#include <gtest/gtest.h>

#include <vector>

namespace espalier::model {
namespace {

class PassTest : public testing::Test {
protected:
    PassTest()
        : memory_(std::move(*cache::Memory::create(shape(), {4, 4}))),
          sequence_(std::move(*cache::Sequence::create(memory_, 256))) {}

    static cache::StateShape shape() {
        cache::StateShape s;
        s.n_kv_layers = s.n_kv_heads = s.n_recurrent_layers = s.n_value_heads = 1;
        s.head_dim = s.key_dim = s.value_dim = s.conv_channels = s.hidden = 16;
        return s;
    }
    static PassLimits limits() { return {.rows_max = 32, .segments_max = 2, .tree_nodes_max = 8, .context_tokens = 256}; }

    Status plan(Pass& pass, int32_t n, std::vector<int32_t> parents, int32_t spine) {
        tokens_.assign(static_cast<size_t>(n), 0);
        parents_ = std::move(parents);
        const Segment segment{&sequence_, tokens_, parents_, spine};
        return pass.plan({&segment, 1}, Pass::Base::trunk);
    }

    cache::Memory memory_;
    cache::Sequence sequence_;
    std::vector<TokenId> tokens_;
    std::vector<int32_t> parents_;
};

TEST_F(PassTest, AChainIsOneGroupInOrder) {
    Pass pass(limits());
    ASSERT_TRUE(plan(pass, 5, {}, 5).has_value());
    ASSERT_EQ(pass.groups().size(), 1u);
    EXPECT_EQ(pass.order().size(), 5u);
    EXPECT_EQ(pass.rows()[4].position, 4);
    EXPECT_EQ(pass.n_tree_rows(), 0);
}

TEST_F(PassTest, EveryTreeRowBelongsToExactlyOneLeafsPath) {
    Pass pass(limits());
    // spine 0 1; 2 and 3 below 1; 4 below 2; 5 below 3; 6 below 2
    ASSERT_TRUE(plan(pass, 7, {-1, 0, 1, 1, 2, 3, 2}, 2).has_value());
    ASSERT_EQ(pass.groups().size(), 4u) << "the spine and the leaves 4, 5, 6";
    std::vector<int> seen(7, 0);
    for (const int32_t row : pass.order()) ++seen[static_cast<size_t>(row)];
    EXPECT_EQ(seen, std::vector<int>(7, 1));
    const PassGroup& last = pass.groups()[3];
    EXPECT_EQ(last.order_end - last.order_begin, 1) << "node 2 was covered by the path of leaf 4";
    EXPECT_EQ(last.path_end - last.path_begin, 2) << "but it is on the path of leaf 6";
    EXPECT_EQ(pass.rows()[6].position, 3);
    EXPECT_EQ(pass.rows()[6].tree_row, 4);
}

TEST_F(PassTest, RefusesMalformedTreesAndTooMuch) {
    Pass pass(limits());
    EXPECT_EQ(plan(pass, 3, {-1, 0, 2}, 1).error().code, ErrorCode::invalid_input) << "its own parent";
    EXPECT_EQ(plan(pass, 3, {-1, -1, 1}, 1).error().code, ErrorCode::invalid_input) << "a second root";
    EXPECT_EQ(plan(pass, 3, {-1, 0, 0}, 3).error().code, ErrorCode::invalid_input) << "the spine forks";
    EXPECT_EQ(plan(pass, 4, {-1, 0, 1, 0}, 2).error().code, ErrorCode::invalid_input) << "a draft above the spine's end";
    EXPECT_EQ(plan(pass, 3, {-1, 0}, 1).error().code, ErrorCode::invalid_input) << "parents missing";
    EXPECT_EQ(plan(pass, 3, {}, 0).error().code, ErrorCode::invalid_input) << "no spine";
    EXPECT_EQ(plan(pass, 33, {}, 33).error().code, ErrorCode::exhausted);
    EXPECT_EQ(plan(pass, 10, {}, 1).error().code, ErrorCode::exhausted) << "nine drafts, eight allowed";
}

}  // namespace
}  // namespace espalier::model
