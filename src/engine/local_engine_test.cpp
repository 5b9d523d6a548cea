#include "engine/local_engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "checkpoint/reference_checkpoint.h"
#include "checkpoint/test_folder.h"
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

// Waits for the first tokens; false if none came for 30 s.
bool decodes(JobStream& stream) {
    while (const auto event = stream.wait_next(30'000)) {
        if (event->kind == JobEvent::Kind::tokens) return true;
    }
    return false;
}

// Tokens, and the log probabilities of the best ones.
using Reply = std::vector<std::pair<TokenId, std::vector<std::pair<TokenId, float>>>>;

// Checks where the prompt's beginning came from.
Reply reply_of(LocalEngine& engine, const Job& job, int32_t cached, CacheSource source) {
    Reply reply;
    const auto stream = *engine.submit(job);
    for (;;) {
        auto event = stream->wait_next(30'000);
        EXPECT_TRUE(event.has_value()) << "no event for 30 s";
        if (!event) return reply;
        for (const TokenLogprob& entry : event->logprobs) reply.emplace_back(entry.token, entry.top);
        if (event->kind != JobEvent::Kind::finished) continue;
        EXPECT_EQ(event->timings.cached_tokens, cached);
        EXPECT_EQ(to_string(event->timings.cache_source), std::string(to_string(source)));
        return reply;
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

// Where a snapshot is taken and where it comes from changes no bit: cold, from memory, from disk, at random offsets.
TEST(LocalEngine, ColdWarmAndStoredAgreeAtRandomOffsets) {
    EngineOptions with_disk = options(1);
    const checkpoint::TestFolder folder;
    with_disk.disk.directory = folder.path();
    with_disk.disk.bytes_max = int64_t{64} << 20;
    std::mt19937 random(11);
    std::vector<Job> second;
    std::vector<int32_t> offsets;
    std::vector<Reply> cold;
    std::vector<Reply> warm;
    {
        const auto engine = start(with_disk);
        for (uint32_t i = 0; i < 4; ++i) {
            const auto offset = static_cast<int32_t>(30 + random() % 250);
            Job first = job(300, 70 + i, 2);
            first.boundaries = tool_boundaries({offset});
            drain(**engine->submit(first));
            first.prompt.resize(static_cast<size_t>(offset));
            const Job tail = job(40, 90 + i, 0);
            first.prompt.insert(first.prompt.end(), tail.prompt.begin(), tail.prompt.end());
            first.max_tokens = 6;
            first.sampling.n_logprobs = 4;
            first.boundaries.clear();
            second.push_back(first);
            offsets.push_back(offset);
            warm.push_back(reply_of(*engine, second.back(), offset, CacheSource::ram));
            Job salted = second.back();
            salted.cache_salt = "cold";
            cold.push_back(reply_of(*engine, salted, 0, CacheSource::none));
        }
    }
    for (size_t i = 0; i < second.size(); ++i) {
        const auto engine = start(with_disk);  // one that has computed nothing takes reading for faster
        EXPECT_EQ(warm[i], cold[i]) << "offset " << offsets[i];
        EXPECT_EQ(reply_of(*engine, second[i], offsets[i], CacheSource::disk), cold[i]) << "offset " << offsets[i];
    }
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
    ASSERT_TRUE(decodes(*running));
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
    for (uint32_t i = 0; i < 6; ++i) {
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
    for (uint32_t i = 0; i < 4; ++i) {
        Job request = job(900, 30 + i % 3, 124);
        request.boundaries = tool_boundaries({300, 650, 890, 900});
        const Outcome outcome = drain(**engine->submit(request));
        ASSERT_EQ(outcome.last.kind, JobEvent::Kind::finished) << outcome.last.error.message;
        EXPECT_EQ(outcome.tokens.size(), 124u);
    }
}

// A client that sends each reply back as it was produced; `other` replaces the reply in one turn.
std::vector<TokenId> next_prompt(const std::vector<TokenId>& prompt, const std::vector<TokenId>& reply, uint32_t seed) {
    std::vector<TokenId> next = prompt;
    next.insert(next.end(), reply.begin(), reply.end());
    const Job more = job(20, seed, 1);
    next.insert(next.end(), more.prompt.begin(), more.prompt.end());
    return next;
}

TEST(LocalEngine, RepliesThatComeBackAreKeptOnceThatWasSeen) {
    const auto engine = start(options(1));
    Job request = job(100, 50, 200);
    // Some id that the model soon chooses ends the reply.
    const auto probe = drain(**engine->submit(request)).tokens;
    const auto ask = [&](const std::vector<TokenId>& prompt, std::vector<TokenId>& reply) {
        Job turn;
        turn.prompt = prompt;
        turn.max_tokens = 200;
        turn.cache_salt = "turns";
        for (TokenId id = 0; id < 1024; id += 9) turn.stop_ids.push_back(id);
        const Outcome outcome = drain(**engine->submit(turn));
        EXPECT_EQ(outcome.last.reason, FinishReason::stop_id);
        reply = outcome.tokens;
        return outcome.last.timings.cached_tokens;
    };
    ASSERT_GT(probe.size(), 0u);
    std::vector<TokenId> prompt = request.prompt;
    std::vector<TokenId> reply;
    EXPECT_EQ(ask(prompt, reply), 0);
    for (uint32_t turn = 0; turn < 4; ++turn) {
        const auto n_prompt = static_cast<int32_t>(prompt.size());
        const auto n_reply = static_cast<int32_t>(reply.size());
        prompt = next_prompt(prompt, reply, 60 + turn);
        // The first time the end of the prompt is the deepest snapshot; that the reply came back is seen then.
        EXPECT_EQ(ask(prompt, reply), turn == 0 ? n_prompt : n_prompt + n_reply) << turn;
    }
    // A reply that came back otherwise: from the end of its prompt on, and no snapshot of the next reply.
    const auto n_prompt = static_cast<int32_t>(prompt.size());
    prompt = next_prompt(prompt, {1, 2, 3}, 70);
    EXPECT_EQ(ask(prompt, reply), n_prompt);
    const auto n_after = static_cast<int32_t>(prompt.size());
    EXPECT_EQ(ask(next_prompt(prompt, reply, 71), reply), n_after);
}

TEST(LocalEngine, ABrokenOffPrefillIsNotLost) {
    EngineOptions roomy = options(1);
    roomy.context_tokens = 2048;
    const auto engine = start(roomy);
    auto running = *engine->submit(job(2000, 51, 5));
    for (int32_t done = 0; done < 512;) {
        const auto event = running->wait_next(30'000);
        ASSERT_TRUE(event.has_value());
        ASSERT_EQ(event->kind, JobEvent::Kind::prefill_progress) << "the prompt was read before it could be broken off";
        done = event->prompt_done;
    }
    running->cancel();
    const Outcome broken = drain(*running);
    EXPECT_EQ(broken.last.reason, FinishReason::cancelled);
    const Outcome again = drain(**engine->submit(job(2000, 51, 5)));
    EXPECT_GE(again.last.timings.cached_tokens, 512);
    Job salted = job(2000, 51, 5);
    salted.cache_salt = "cold";
    EXPECT_EQ(drain(**engine->submit(salted)).tokens, again.tokens);
}

// The engine is idle for two seconds first.
TEST(LocalEngine, SlowACancelledRequestIsWrittenWhenNothingElseIsToDo) {
    EngineOptions with_disk = options(1);
    const checkpoint::TestFolder folder;
    with_disk.disk.directory = folder.path();
    with_disk.disk.bytes_max = int64_t{64} << 20;
    {
        const auto engine = start(with_disk);
        Job talk = job(300, 52, 700);
        talk.boundaries = tool_boundaries({299});
        auto running = *engine->submit(talk);
        ASSERT_TRUE(decodes(*running));
        running->cancel();
        EXPECT_EQ(drain(*running).last.reason, FinishReason::cancelled);
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (engine->gauges().disk_writes_total == 0 && std::chrono::steady_clock::now() < give_up)
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_EQ(engine->gauges().disk_writes_total, 1);
    }
}

TEST(LocalEngine, TheSamePromptTwiceIsReadOnce) {
    const auto engine = start(options(1));
    const Outcome first = drain(**engine->submit(job(150, 52, 9)));
    const Outcome again = drain(**engine->submit(job(150, 52, 9)));
    EXPECT_EQ(again.last.timings.cached_tokens, 150);
    EXPECT_EQ(again.last.timings.cache_source, CacheSource::ram);
    EXPECT_EQ(again.tokens, first.tokens);
    EXPECT_EQ(drain(**engine->submit(job(150, 52, 1))).tokens.front(), first.tokens.front()) << "done with its first token";
}

TEST(LocalEngine, JobsWithOneBeginningReadItOnce) {
    const auto engine = start(options(3));
    std::vector<std::shared_ptr<JobStream>> streams;
    for (int i = 0; i < 3; ++i) {
        Job request = job(900, 53, 5);
        request.prompt.resize(860);
        for (int k = 0; k < 20; ++k) request.prompt.push_back(i);
        request.boundaries = {{800, Boundary::Kind::message_end}};
        streams.push_back(*engine->submit(request));
    }
    std::vector<int32_t> cached;
    for (auto& stream : streams) cached.push_back(drain(*stream).last.timings.cached_tokens);
    EXPECT_EQ(cached, (std::vector<int32_t>{0, 800, 800}));
}

TEST(LocalEngine, TellsWhereAPromptPartedFromAnEarlierOne) {
    const auto engine = start(options(1));
    Job first = job(500, 54, 3);
    first.cache_owner = "a";
    drain(**engine->submit(first));
    Job second = job(500, 54, 3);
    second.cache_owner = "a";
    second.prompt[10] = (second.prompt[10] + 1) % 1024;
    auto stream = *engine->submit(second);
    const auto progress = stream->wait_next(30'000);
    ASSERT_TRUE(progress.has_value());
    ASSERT_NE(progress->cache_miss, nullptr);
    EXPECT_EQ(progress->cache_miss->common_tokens, 10);
    EXPECT_EQ(progress->cache_miss->earlier_tokens, 500);
    EXPECT_EQ(progress->cache_miss->earlier.front(), first.prompt[10]);
    EXPECT_EQ(progress->cache_miss->now.front(), second.prompt[10]);
    EXPECT_EQ(progress->cache_miss->before, std::vector<TokenId>(first.prompt.begin(), first.prompt.begin() + 10));
    drain(*stream);
    ASSERT_EQ(engine->cache_misses("a").size(), 1u);
    EXPECT_TRUE(engine->cache_misses("").empty());
    EXPECT_EQ(engine->gauges().cache_misses_total, 1);
}

TEST(LocalEngine, AnOwnerThatFloodsLeavesTheOthersTheirShare) {
    EngineOptions tight = options(1);
    tight.cache_bytes = int64_t{5} << 20;
    const auto engine = start(tight);
    Job quiet = job(300, 55, 2);
    quiet.cache_owner = "quiet";
    drain(**engine->submit(quiet));
    const int64_t evictions = engine->gauges().cache_evictions_total;
    for (uint32_t i = 0; i < 16; ++i) {
        Job flood = job(500, 100 + i, 2);
        flood.cache_owner = "flood";
        flood.cache_salt = std::to_string(i);
        drain(**engine->submit(flood));
    }
    EXPECT_GT(engine->gauges().cache_evictions_total, evictions);
    EXPECT_EQ(drain(**engine->submit(quiet)).last.timings.cached_tokens, 300);
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
