#include "decode/step_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "cache/prefix_tree.h"
#include "decode/step_loop_fixture.h"

namespace {

// Every allocation of this test program is counted while the counter is on. Sanitizers bring allocators of their own.
#ifdef ESPALIER_SANITIZED
constexpr bool kCountsAllocations = false;
#else
constexpr bool kCountsAllocations = true;
#endif
std::atomic<bool> g_is_counting = false;
std::atomic<int64_t> g_allocations = 0;

}  // namespace

#ifndef ESPALIER_SANITIZED
// noinline: gcc 12 sees through one half of an inlined pair and reports a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    if (g_is_counting) ++g_allocations;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    std::abort();
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
    return operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
#endif

namespace espalier::decode {

int64_t count_allocations(const std::function<void()>& work) {
    g_allocations = 0;
    g_is_counting = kCountsAllocations;
    work();
    g_is_counting = false;
    return kCountsAllocations ? g_allocations.load() : -1;
}

namespace {

TEST_F(StepLoopTest, TheReplyDoesNotDependOnHowThePromptIsRead) {
    GenerationParams params;
    params.max_tokens = 12;
    Generation whole = make(ids(120, 1), params);
    const auto expected = run(whole);
    for (const int32_t rows : {1, 7, 64}) {
        Generation pieces = make(ids(120, 1), params);
        EXPECT_EQ(run(pieces, rows), expected) << rows;
    }
    params.boundaries = {17, 100, 116, 117, 120};
    Generation with_boundaries = make(ids(120, 1), params);
    EXPECT_EQ(run(with_boundaries), expected);
}

TEST_F(StepLoopTest, BoundariesAreMetExactlyAndResumeIsInvisible) {
    GenerationParams params;
    params.max_tokens = 10;
    params.sampling.temperature = 0.8f;
    params.sampling.seed = 5;
    Generation plain = make(ids(150, 2), params);
    const auto expected = run(plain);
    params.boundaries = {40, 90, 146, 150};
    cache::PrefixTree tree(*memory_, 1 << 20);
    std::vector<int32_t> lengths;
    Generation first = make(ids(150, 2), params);
    EXPECT_EQ(run(first, 96,
                  [&](Generation& generation) {
                      lengths.push_back(generation.sequence().length());
                      tree.keep({}, generation.sequence(), cache::PointKind::tool_boundary, 0);
                  }),
              expected);
    EXPECT_EQ(lengths, params.boundaries);
    for (const size_t keep : {149u, 100u, 60u}) {
        const auto prompt = ids(150, 2);
        const auto match = tree.match({}, std::span(prompt).first(keep));
        ASSERT_NE(match.node, nullptr);
        Generation resumed(tree.fork(*match.node, 512), prompt, params, nullptr);
        EXPECT_GT(resumed.cached_tokens(), 0);
        EXPECT_EQ(run(resumed), expected) << keep;
    }
}

TEST_F(StepLoopTest, AWhollyRestoredPromptGivesTheSameReplyAndLogprobs) {
    GenerationParams params;
    params.max_tokens = 8;
    params.n_logprobs = 2;
    params.boundaries = {150};
    std::optional<cache::Snapshot> at_end;
    Generation first = make(ids(150, 2), params);
    const auto expected =
        run(first, 96, [&](Generation& generation) { at_end.emplace(cache::Snapshot::take(generation.sequence())); });
    ASSERT_TRUE(at_end.has_value());
    Generation again(at_end->restore(), ids(150, 2), params, nullptr);
    ASSERT_TRUE(again.needs_first_token());
    EXPECT_EQ(again.cached_tokens(), 150);
    loop_->choose_first(again);
    EXPECT_EQ(run(again), expected);
    ASSERT_EQ(again.logprobs().size(), first.logprobs().size());
    for (size_t i = 0; i < first.logprobs().size(); ++i) {
        for (size_t k = 0; k < 3; ++k) EXPECT_EQ(again.logprobs()[i][k].logprob, first.logprobs()[i][k].logprob) << i;
    }
}

TEST_F(StepLoopTest, SeveralRequestsAtOnceReplyAsIfAlone) {
    std::vector<std::vector<TokenId>> expected;
    GenerationParams params;
    params.max_tokens = 15;
    params.sampling.temperature = 1.0f;
    for (uint32_t i = 0; i < 3; ++i) {
        params.sampling.seed = i;
        Generation alone = make(ids(30 + 40 * i, i), params);
        expected.push_back(run(alone));
    }
    std::vector<Generation> together;
    together.reserve(3);
    for (uint32_t i = 0; i < 3; ++i) {
        params.sampling.seed = i;
        together.push_back(make(ids(30 + 40 * i, i), params));
    }
    run_together(together, 20);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::ranges::equal(together[i].reply(), expected[i])) << i;
}

TEST_F(StepLoopTest, StopIdsEndTheReplyAndAreNotPartOfIt) {
    GenerationParams params;
    params.max_tokens = 20;
    Generation plain = make(ids(20, 3), params);
    const auto expected = run(plain);
    EXPECT_EQ(plain.reason(), EndReason::length);
    params.stop_ids = {expected[4]};
    const auto first = std::find(expected.begin(), expected.end(), expected[4]);
    Generation stopped = make(ids(20, 3), params);
    EXPECT_EQ(run(stopped), std::vector<TokenId>(expected.begin(), first));
    EXPECT_EQ(stopped.reason(), EndReason::stop_id);
}

TEST_F(StepLoopTest, AStepAllocatesNothing) {
    GenerationParams params;
    params.max_tokens = 60;
    for (const float temperature : {0.0f, 0.9f}) {
        params.sampling.temperature = temperature;
        Generation generation = make(ids(150, 4), params);
        const int64_t n = allocations_of(generation);
        if (n < 0) GTEST_SKIP() << "allocations are not counted under a sanitizer";
        EXPECT_EQ(n, 0) << "temperature " << temperature;
    }
}

TEST_F(StepLoopTest, LogprobsComeWithEveryToken) {
    GenerationParams params;
    params.max_tokens = 5;
    params.n_logprobs = 3;
    Generation generation = make(ids(10, 5), params);
    run(generation);
    ASSERT_EQ(generation.logprobs().size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
        const auto& row = generation.logprobs()[i];
        ASSERT_EQ(row.size(), 4u);
        EXPECT_EQ(row[0].token, generation.reply()[i]);
        EXPECT_EQ(row[1].token, row[0].token) << "greedy takes the best";
        EXPECT_LE(row[2].logprob, row[1].logprob);
    }
}

}  // namespace
}  // namespace espalier::decode
