// Drafts of any shape, right and wrong, against plain decoding: the same reply, the same log probabilities, the same sequence.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "cache/prefix_tree.h"
#include "decode/step_loop_fixture.h"

namespace espalier::decode {
namespace {

// Knows the reply. Proposes what follows, with wrong siblings at every node and at times a wrong turn, in random shapes.
class ScriptedSession : public DraftSession {
public:
    struct Script {
        std::vector<TokenId> reply;
        uint32_t seed = 0;
        int32_t wrong_percent = 25;
        int32_t vocab = 1024;
        bool is_full = false;  // as many nodes as are allowed, always
    };
    explicit ScriptedSession(Script script) : script_(std::move(script)), random_(script_.seed) {}

    void propose(std::span<const TokenId> reply, cache::Sequence*, const DraftLimits& limits, DraftTree& tree) override {
        proposed_in_prefill += reply.empty() ? 1 : 0;
        const auto n_nodes = script_.is_full ? limits.nodes_max : static_cast<int32_t>(random_() % 24) % (limits.nodes_max + 1);
        int32_t right = -1;
        size_t next = reply.size();
        for (int32_t failures = 0; tree.size() < n_nodes && failures < 200;) {
            const bool is_right = next < script_.reply.size() && static_cast<int32_t>(random_() % 100) >= script_.wrong_percent;
            const int32_t parent =
                is_right ? right : static_cast<int32_t>(random_() % static_cast<uint32_t>(tree.size() + 1)) - 1;
            const int32_t depth = parent < 0 ? 1 : tree[parent].depth + 1;
            const TokenId token = is_right ? script_.reply[next] : static_cast<TokenId>(random_()) % script_.vocab;
            if (depth > limits.depth_max || token < 0) {
                ++failures;
                continue;
            }
            const int32_t before = tree.size();
            const int32_t node = tree.add(parent, token, 0.5f, bit(DraftKind::suffix));
            failures += tree.size() == before ? 1 : 0;
            if (is_right) {
                right = node;
                ++next;
            }
        }
    }
    void observe(std::span<const TokenId>, const DraftTree&, std::span<const int32_t> path) override {
        longest = std::max(longest, path.size());
    }

    size_t longest = 0;
    int32_t proposed_in_prefill = 0;

private:
    Script script_;
    std::mt19937 random_;
};

class DraftVerifyTest : public StepLoopTest {
protected:
    struct Outcome {
        std::vector<TokenId> reply;
        std::vector<TokenId> sequence;
        std::vector<std::vector<TokenLogprob>> logprobs;
        EndReason reason;
        int64_t kept_text_bytes;
        DraftCounts counts;
        int32_t rounds;
        size_t longest = 0;
        int32_t proposed_in_prefill = 0;
    };
    Outcome outcome(const Generation& generation) {
        const auto tokens = generation.sequence().tokens();
        return {{generation.reply().begin(), generation.reply().end()},
                {tokens.begin(), tokens.end()},
                {generation.logprobs().begin(), generation.logprobs().end()},
                generation.reason(),
                generation.kept_text_bytes(),
                generation.draft_counts,
                generation.rounds};
    }
    Outcome plain(const std::vector<TokenId>& prompt, const GenerationParams& params) {
        Generation generation = make(prompt, params);
        run(generation);
        return outcome(generation);
    }
    Outcome drafted(const std::vector<TokenId>& prompt, const GenerationParams& params, ScriptedSession::Script script,
                    const StepLoop::BoundaryHook& hook = {}) {
        Generation generation = make(prompt, params);
        auto session = std::make_unique<ScriptedSession>(std::move(script));
        const ScriptedSession& facts = *session;
        generation.set_drafts(std::move(session));
        run(generation, 96, hook);
        Outcome result = outcome(generation);
        result.longest = facts.longest;
        result.proposed_in_prefill = facts.proposed_in_prefill;
        return result;
    }
    static void expect_same(const Outcome& a, const Outcome& b) {
        EXPECT_EQ(a.reply, b.reply);
        EXPECT_EQ(a.sequence, b.sequence);
        EXPECT_EQ(a.reason, b.reason);
        EXPECT_EQ(a.kept_text_bytes, b.kept_text_bytes);
        ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
        for (size_t i = 0; i < a.logprobs.size(); ++i) {
            for (size_t k = 0; k < a.logprobs[i].size(); ++k) {
                EXPECT_EQ(a.logprobs[i][k].token, b.logprobs[i][k].token) << i;
                EXPECT_EQ(a.logprobs[i][k].logprob, b.logprobs[i][k].logprob) << i;
            }
        }
    }
};

TEST_F(DraftVerifyTest, RepliesAreTheSameWithAnyDrafts) {
    GenerationParams params;
    params.max_tokens = 70;
    for (uint32_t seed = 0; seed < 12; ++seed) {
        params.sampling = {};
        params.sampling.seed = seed;
        params.sampling.temperature = seed % 3 == 0 ? 0.0f : 0.9f;
        params.sampling.top_p = seed % 2 == 0 ? 1.0f : 0.9f;
        if (seed % 4 == 1) params.sampling.repetition_penalty = 1.3f;
        if (seed % 4 == 2) params.sampling.frequency_penalty = 0.7f;
        if (seed % 4 == 3) params.sampling.logit_bias = {{7, 4.0f}, {11, -100.0f}};
        params.n_logprobs = seed % 2 == 0 ? 2 : -1;
        params.boundaries = seed % 2 == 0 ? std::vector<int32_t>{40, 90, 103} : std::vector<int32_t>{};
        const auto prompt = ids(103, seed);
        const Outcome expected = plain(prompt, params);
        const Outcome with_drafts = drafted(prompt, params, {expected.reply, seed});
        expect_same(with_drafts, expected);
        EXPECT_GT(with_drafts.counts.accepted, 20) << seed;
        EXPECT_LT(with_drafts.counts.accepted, with_drafts.counts.drafted) << "wrong ones were proposed too";
        EXPECT_LT(with_drafts.rounds, expected.rounds) << seed;
        EXPECT_GT(with_drafts.longest, 1u) << seed;
        EXPECT_EQ(with_drafts.rounds + with_drafts.counts.accepted + 1, 70) << "every round adds one token and those accepted";
        EXPECT_GE(with_drafts.proposed_in_prefill, 1) << "the prompt's last chunk carries drafts";
    }
}

TEST_F(DraftVerifyTest, TheWidestAndDeepestTreesFit) {
    GenerationParams params;
    params.max_tokens = 200;
    const auto prompt = ids(30, 3);
    const Outcome expected = plain(prompt, params);
    for (const int32_t wrong_percent : {0, 60, 97}) {
        const Outcome with_drafts = drafted(prompt, params, {expected.reply, 1, wrong_percent, 1024, true});
        expect_same(with_drafts, expected);
        const auto n_nodes = static_cast<size_t>(forward_->limits().tree_nodes_max);
        EXPECT_EQ(with_drafts.longest == n_nodes, wrong_percent == 0);
    }
}

TEST_F(DraftVerifyTest, NothingIsRunBeyondTheContext) {
    GenerationParams params;
    params.max_tokens = 60;
    const auto prompt = ids(512 - 60, 3);
    const Outcome expected = plain(prompt, params);
    expect_same(drafted(prompt, params, {expected.reply, 1, 0, 1024, true}), expected);
}

TEST_F(DraftVerifyTest, SnapshotsAreTakenExactlyAtTheirBoundaries) {
    GenerationParams params;
    params.max_tokens = 20;
    params.boundaries = {40, 90, 146, 150};
    const auto prompt = ids(150, 2);
    const Outcome expected = plain(prompt, params);
    cache::PrefixTree tree(*memory_, 1 << 20);
    std::vector<int32_t> lengths;
    const Outcome first = drafted(prompt, params, {expected.reply, 4, 10}, [&](Generation& generation) {
        lengths.push_back(generation.sequence().length());
        tree.keep({}, generation.sequence(), cache::PointKind::tool_boundary, 0);
    });
    expect_same(first, expected);
    EXPECT_EQ(lengths, params.boundaries);
    for (const size_t keep : {149u, 100u, 60u}) {
        const auto match = tree.match({}, std::span(prompt).first(keep));
        ASSERT_NE(match.node, nullptr);
        Generation resumed(tree.fork(*match.node, 512), prompt, params, nullptr);
        resumed.set_drafts(std::make_unique<ScriptedSession>(ScriptedSession::Script{expected.reply, 5}));
        run(resumed);
        expect_same(outcome(resumed), expected);
    }
    const auto match = tree.match({}, prompt);
    ASSERT_NE(match.node, nullptr);
    Generation whole(tree.fork(*match.node, 512), prompt, params, nullptr);
    ASSERT_TRUE(whole.needs_first_token());
    whole.set_drafts(std::make_unique<ScriptedSession>(ScriptedSession::Script{expected.reply, 6}));
    loop_->choose_first(whole);
    run(whole);
    expect_same(outcome(whole), expected);
}

TEST_F(DraftVerifyTest, WhatLiesBeyondAStopIsNotCommitted) {
    GenerationParams params;
    params.max_tokens = 40;
    const auto prompt = ids(20, 3);
    const std::vector<TokenId> reply = plain(prompt, params).reply;
    for (const size_t stop : {1u, 5u, 17u}) {
        params.stop_ids = {reply[stop]};
        const Outcome expected = plain(prompt, params);
        EXPECT_EQ(expected.reason, EndReason::stop_id);
        // The drafts go on past the stop, as if it were an ordinary token.
        expect_same(drafted(prompt, params, {reply, 9, 0, 1024, true}), expected);
        expect_same(drafted(prompt, params, {reply, 9, 30}), expected);
    }
}

TEST_F(DraftVerifyTest, SeveralRequestsShareTheDraftNodes) {
    GenerationParams params;
    params.max_tokens = 40;
    params.sampling.temperature = 1.0f;
    std::vector<Outcome> expected;
    std::vector<Generation> together;
    together.reserve(3);
    for (uint32_t i = 0; i < 3; ++i) {
        params.sampling.seed = i;
        params.boundaries = {20, static_cast<int32_t>(30 + 40 * i)};
        expected.push_back(plain(ids(30 + 40 * i, i), params));
        together.push_back(make(ids(30 + 40 * i, i), params));
        together.back().set_drafts(
            std::make_unique<ScriptedSession>(ScriptedSession::Script{expected.back().reply, i, 20, 1024, i != 1}));
    }
    run_together(together, 20);
    for (size_t i = 0; i < 3; ++i) {
        expect_same(outcome(together[i]), expected[i]);
        EXPECT_GT(together[i].draft_counts.accepted, 10) << i;
    }
}

TEST_F(DraftVerifyTest, AStepWithDraftsAllocatesNothing) {
    GenerationParams params;
    params.max_tokens = 100;
    const Outcome expected = plain(ids(150, 4), params);
    Generation generation = make(ids(150, 4), params);
    generation.set_drafts(std::make_unique<ScriptedSession>(ScriptedSession::Script{expected.reply, 1, 40}));
    const int64_t n = allocations_of(generation);
    if (n < 0) GTEST_SKIP() << "allocations are not counted under a sanitizer";
    EXPECT_EQ(n, 0);
    expect_same(outcome(generation), expected);
}

}  // namespace
}  // namespace espalier::decode
