#include "engine/local_engine.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "checkpoint/reference_checkpoint.h"
#include "engine/load.h"
#include "engine/memory_plan.h"

namespace espalier::engine {
namespace {

EngineOptions options(int32_t parallel = 2) {
    EngineOptions result;
    result.model.path = checkpoint::reference_checkpoint("tiny_a");
    result.model.n_threads = 2;
    result.context_tokens = 1024;
    result.sequences_max = parallel;
    result.cache_bytes = int64_t{64} << 20;
    return result;
}

std::unique_ptr<LocalEngine> start(const EngineOptions& with = options()) {
    auto engine = LocalEngine::start(with, nullptr);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return std::move(*engine);
}

Job job(size_t n_prompt, uint32_t seed, int32_t max_tokens) {
    std::mt19937 random(seed);
    Job result;
    for (size_t i = 0; i < n_prompt; ++i) result.prompt.push_back(static_cast<TokenId>(random() % 1024));
    result.max_tokens = max_tokens;
    return result;
}

std::vector<Boundary> tool_boundaries(std::initializer_list<int32_t> lengths) {
    std::vector<Boundary> boundaries;
    for (const int32_t length : lengths) boundaries.push_back({length, Boundary::Kind::before_tool});
    return boundaries;
}

struct Outcome {
    std::vector<TokenId> tokens;
    JobEvent last;
};

Outcome drain(JobStream& stream) {
    Outcome outcome;
    for (;;) {
        auto event = stream.wait_next(30'000);
        EXPECT_TRUE(event.has_value()) << "no event for 30 s";
        if (!event) return outcome;
        outcome.tokens.insert(outcome.tokens.end(), event->tokens.begin(), event->tokens.end());
        if (event->kind == JobEvent::Kind::finished || event->kind == JobEvent::Kind::failed) {
            outcome.last = std::move(*event);
            return outcome;
        }
    }
}

TEST(LocalEngine, RepliesAndReportsTimings) {
    const auto engine = start();
    auto stream = engine->submit(job(50, 1, 12));
    ASSERT_TRUE(stream.has_value());
    const Outcome outcome = drain(**stream);
    EXPECT_EQ(outcome.tokens.size(), 12u);
    EXPECT_EQ(outcome.last.kind, JobEvent::Kind::finished);
    EXPECT_EQ(outcome.last.reason, FinishReason::length);
    EXPECT_EQ(outcome.last.timings.prompt_tokens, 50);
    EXPECT_EQ(outcome.last.timings.output_tokens, 12);
    EXPECT_EQ(outcome.last.timings.rounds, 11);
    EXPECT_TRUE((*stream)->is_done());
    EXPECT_FALSE((*stream)->try_next().has_value());
}

TEST(LocalEngine, TheNextTurnContinuesFromTheStableBoundary) {
    const auto engine = start();
    Job first = job(200, 2, 5);
    first.boundaries = tool_boundaries({120, 196, 200});
    Job second = job(200, 2, 5);
    second.prompt.resize(196);
    const Job tail = job(60, 3, 0);
    second.prompt.insert(second.prompt.end(), tail.prompt.begin(), tail.prompt.end());

    const auto cold_engine = start();
    const Outcome cold = drain(**cold_engine->submit(second));
    EXPECT_EQ(cold.last.timings.cached_tokens, 0);

    drain(**engine->submit(first));
    const Outcome warm = drain(**engine->submit(second));
    EXPECT_EQ(warm.last.timings.cached_tokens, 196);
    EXPECT_EQ(warm.tokens, cold.tokens) << "a cache hit changes nothing";

    Job salted = second;
    salted.cache_salt = "other";
    const Outcome isolated = drain(**engine->submit(salted));
    EXPECT_EQ(isolated.last.timings.cached_tokens, 0);
    EXPECT_EQ(isolated.tokens, cold.tokens);
}

TEST(LocalEngine, ManyClientsGetTheirSoloReplies) {
    const auto engine = start(options(3));
    std::vector<std::vector<TokenId>> solo;
    for (uint32_t i = 0; i < 6; ++i) solo.push_back(drain(**engine->submit(job(20 + 30 * i, i, 10))).tokens);
    std::vector<std::thread> clients;
    std::vector<std::vector<TokenId>> together(6);
    for (uint32_t i = 0; i < 6; ++i) {
        clients.emplace_back([&, i] { together[i] = drain(**engine->submit(job(20 + 30 * i, i, 10))).tokens; });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(together, solo);
    const BackendGauges gauges = engine->gauges();
    EXPECT_EQ(gauges.output_tokens_total, 120);
    EXPECT_EQ(gauges.jobs_queued, 0);
}

TEST(LocalEngine, CancelEndsAJobInEveryPhase) {
    EngineOptions one = options(1);
    const auto engine = start(one);
    auto running = *engine->submit(job(100, 4, 900));
    auto queued = *engine->submit(job(100, 5, 900));
    queued->cancel();
    // Wait until the first one decodes.
    while (true) {
        const auto event = running->wait_next(30'000);
        ASSERT_TRUE(event.has_value());
        if (event->kind == JobEvent::Kind::tokens) break;
    }
    running->cancel();
    EXPECT_EQ(drain(*running).last.reason, FinishReason::cancelled);
    EXPECT_EQ(drain(*queued).last.reason, FinishReason::cancelled);
    EXPECT_EQ(drain(**engine->submit(job(10, 6, 3))).tokens.size(), 3u) << "the engine goes on";
}

TEST(LocalEngine, RefusesWhatCannotRun) {
    EngineOptions small = options(1);
    small.jobs_max = 1;
    const auto engine = start(small);
    EXPECT_EQ(engine->submit(Job{}).error().code, ErrorCode::invalid_input);
    Job outside = job(3, 7, 1);
    outside.prompt[1] = 1024;
    EXPECT_EQ(engine->submit(outside).error().code, ErrorCode::invalid_input);
    const auto too_long = engine->submit(job(1024, 8, 1));
    ASSERT_FALSE(too_long.has_value());
    EXPECT_NE(too_long.error().message.find("exceeds the available context size"), std::string::npos);
    Job stops = job(3, 9, 1);
    stops.stop_strings = {"x"};
    EXPECT_EQ(engine->submit(stops).error().code, ErrorCode::unsupported);
    const Outcome clamped = drain(**engine->submit(job(1020, 10, 1000)));
    EXPECT_EQ(clamped.tokens.size(), 4u) << "what is left of the context";
}

TEST(LocalEngine, AFullQueueIsSaidAtOnce) {
    EngineOptions small = options(1);
    small.jobs_max = 2;
    const auto engine = start(small);
    std::vector<std::shared_ptr<JobStream>> accepted;
    bool was_refused = false;
    for (uint32_t i = 0; i < 8 && !was_refused; ++i) {
        auto stream = engine->submit(job(500, i, 400));
        if (stream) accepted.push_back(*stream);
        else was_refused = stream.error().message.find("queue is full") != std::string::npos;
    }
    EXPECT_TRUE(was_refused);
    for (auto& stream : accepted) stream->cancel();
    for (auto& stream : accepted) EXPECT_EQ(drain(*stream).last.kind, JobEvent::Kind::finished);
}

TEST(LocalEngine, SnapshotsGiveWayToARequestThatNeedsTheMemory) {
    EngineOptions tight = options(1);
    tight.cache_bytes = int64_t{4} << 20;
    const auto engine = start(tight);
    for (uint32_t i = 0; i < 12; ++i) {
        Job request = job(700, i, 8);
        request.boundaries = tool_boundaries({300, 650, 700});
        const Outcome outcome = drain(**engine->submit(request));
        ASSERT_EQ(outcome.last.kind, JobEvent::Kind::finished) << outcome.last.error.message;
    }
    EXPECT_LE(engine->gauges().cache_bytes, engine->gauges().cache_budget_bytes);
}

// 32 pages: conversation A's snapshot holds 8 of them, a request for the whole context 16; two of the latter do not fit at all.
TEST(LocalEngine, ARequestThatHasToWaitCostsNoSnapshot) {
    EngineOptions tight = options(2);
    tight.cache_bytes = int64_t{6} << 20;
    const auto engine = start(tight);
    Job first = job(500, 20, 2);
    first.boundaries = tool_boundaries({490});
    drain(**engine->submit(first));
    auto running = *engine->submit(job(100, 21, 900));
    while (running->wait_next(30'000)->kind != JobEvent::Kind::tokens) {
    }
    auto waiting = *engine->submit(job(100, 22, 900));
    Job second = job(490, 20, 2);
    second.prompt.push_back(1);
    for (int i = 0; i < 20; ++i) running->wait_next(1000);
    waiting->cancel();
    drain(*waiting);
    running->cancel();
    drain(*running);
    EXPECT_EQ(drain(**engine->submit(second)).last.timings.cached_tokens, 490);
}

TEST(LocalEngine, ALongConversationKeepsItsOwnPrefixInASmallPool) {
    EngineOptions tight = options(1);
    tight.cache_bytes = int64_t{1} << 20;
    const auto engine = start(tight);
    Job first = job(900, 23, 5);
    first.boundaries = tool_boundaries({890});
    drain(**engine->submit(first));
    Job second = job(890, 23, 10);
    const Job more = job(60, 24, 1);
    second.prompt.insert(second.prompt.end(), more.prompt.begin(), more.prompt.end());
    EXPECT_EQ(drain(**engine->submit(second)).last.timings.cached_tokens, 890);
}

TEST(LocalEngine, SnapshotsNeverTakeThePagesOfARunningRequest) {
    EngineOptions tight = options(1);
    tight.cache_bytes = int64_t{1} << 20;
    const auto engine = start(tight);
    for (uint32_t i = 0; i < 6; ++i) {
        Job request = job(900, 30 + i % 3, 124);
        request.boundaries = tool_boundaries({300, 650, 890, 900});
        const Outcome outcome = drain(**engine->submit(request));
        ASSERT_EQ(outcome.last.kind, JobEvent::Kind::finished) << outcome.last.error.message;
        EXPECT_EQ(outcome.tokens.size(), 124u);
    }
}

TEST(LocalEngine, AQueuedJobEndsAtOnceWhenItsClientLeaves) {
    const auto engine = start(options(1));
    auto running = *engine->submit(job(100, 40, 900));
    auto queued = *engine->submit(job(100, 41, 900));
    queued->cancel();
    EXPECT_EQ(drain(*queued).last.reason, FinishReason::cancelled);
    EXPECT_FALSE(running->is_done()) << "the running one goes on";
    running->cancel();
    drain(*running);
}

TEST(LocalEngine, DestructionEndsWhatRunsAndWaits) {
    std::vector<std::shared_ptr<JobStream>> streams;
    {
        const auto engine = start(options(1));
        for (uint32_t i = 0; i < 3; ++i) streams.push_back(*engine->submit(job(100, i, 900)));
    }
    for (auto& stream : streams) EXPECT_NE(drain(*stream).last.kind, JobEvent::Kind::tokens);
}

TEST(LoadModel, NamesTheWordThatIsWrong) {
    ModelOptions bad;
    bad.path = checkpoint::reference_checkpoint("tiny_a");
    bad.acts = "a9";
    EXPECT_NE(load_model(bad).error().message.find("--acts"), std::string::npos);
    bad.acts = "auto";
    bad.kv_type = "int4";
    EXPECT_NE(load_model(bad).error().message.find("--kv-type"), std::string::npos);
    bad.kv_type = "auto";
    bad.n_threads = -1;
    EXPECT_NE(load_model(bad).error().message.find("--threads"), std::string::npos);
    bad.n_threads = 1;
    bad.isa = "mmx";
    EXPECT_FALSE(load_model(bad).has_value());
    bad.isa = "";
    bad.path = "/nonexistent";
    EXPECT_FALSE(load_model(bad).has_value());
}

MemoryRequest request_27b() {
    MemoryRequest request;
    request.shape.n_kv_layers = 17;
    request.shape.n_kv_heads = 4;
    request.shape.head_dim = 256;
    request.shape.kv = kernels::KvType::fp8;
    request.shape.n_recurrent_layers = 48;
    request.shape.n_value_heads = 48;
    request.shape.key_dim = request.shape.value_dim = 128;
    request.shape.conv_channels = 10240;
    request.shape.hidden = 5120;
    request.context_trained = 262144;
    request.sequences_max = 1;
    return request;
}

TEST(MemoryPlan, ChoosesAtLeastWhatAgentsNeed) {
    MemoryRequest request = request_27b();
    request.available_bytes = int64_t{6} << 30;
    const auto plan = plan_memory(request);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    EXPECT_EQ(plan->context_tokens, 32768);
    EXPECT_GE(plan->n_pages, 32768 / 64 + 4);
    EXPECT_LE(plan->bytes, request.available_bytes);
}

TEST(MemoryPlan, SaysWhatWouldFit) {
    MemoryRequest request = request_27b();
    request.available_bytes = int64_t{3} << 30;
    request.context_tokens = 131072;
    const auto plan = plan_memory(request);
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().code, ErrorCode::exhausted);
    EXPECT_NE(plan.error().message.find("the largest context that fits"), std::string::npos);
    request.context_tokens = 262145;
    EXPECT_EQ(plan_memory(request).error().code, ErrorCode::invalid_input);
}

}  // namespace
}  // namespace espalier::engine
