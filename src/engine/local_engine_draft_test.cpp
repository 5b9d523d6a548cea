// Drafts through the whole engine: text, cache hits and counters, against an engine that drafts nothing.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "checkpoint/reference_checkpoint.h"
#include "engine/local_engine.h"

namespace espalier::engine {
namespace {

// Trees have the same size on any machine unless they are sized by measured costs.
std::unique_ptr<LocalEngine> start(const std::string& draft, int32_t parallel = 2, bool sizes_drafts = false) {
    EngineOptions options;
    options.model.path = checkpoint::reference_checkpoint("tiny_a");
    options.model.n_threads = 2;
    options.context_tokens = 1024;
    options.sequences_max = parallel;
    options.cache_bytes = int64_t{64} << 20;
    options.draft = draft;
    options.sizes_drafts = sizes_drafts;
    auto engine = LocalEngine::start(options, nullptr);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return std::move(*engine);
}

struct Reply {
    std::vector<TokenId> tokens;
    Timings timings;
};

Reply reply(LocalEngine& engine, Job job) {
    auto stream = engine.submit(std::move(job));
    EXPECT_TRUE(stream.has_value());
    Reply result;
    for (;;) {
        auto event = (*stream)->wait_next(60'000);
        EXPECT_TRUE(event.has_value()) << "no event for a minute";
        if (!event) return result;
        result.tokens.insert(result.tokens.end(), event->tokens.begin(), event->tokens.end());
        result.timings = event->timings;
        if (event->kind == JobEvent::Kind::finished || event->kind == JobEvent::Kind::failed) return result;
    }
}

// Turns of a conversation whose prompt grows by the reply and a few ids more, as an agent's does.
class Conversation {
public:
    explicit Conversation(uint32_t seed) : random_(seed) { append(random_() % 100 + 40); }
    Job next(float temperature) {
        Job job;
        job.prompt = ids_;
        const auto n = static_cast<int32_t>(ids_.size());
        job.boundaries = {{n - 3, Boundary::Kind::before_tool}};
        job.max_tokens = 30;
        job.sampling.temperature = temperature;
        job.sampling.seed = 7;
        // Random weights say nothing twice; a small alphabet makes them.
        job.sampling.logit_bias = {{5, 50.0f}, {6, 50.0f}, {7, 50.0f}};
        return job;
    }
    void take(const std::vector<TokenId>& tokens) {
        ids_.insert(ids_.end(), tokens.begin(), tokens.end());
        append(random_() % 20 + 2);
    }

private:
    void append(size_t n) {
        for (size_t i = 0; i < n; ++i) ids_.push_back(static_cast<TokenId>(random_() % 1024));
    }
    std::mt19937 random_;
    std::vector<TokenId> ids_;
};

TEST(LocalEngineDrafts, TextAndCacheHitsAreThoseOfAnEngineWithoutDrafts) {
    const auto plain = start("off");
    const std::vector<std::string> drafts = {"suffix,template,prefill", "suffix"};
    std::vector<std::unique_ptr<LocalEngine>> drafting;
    for (const std::string& draft : drafts) drafting.push_back(start(draft));
    std::vector<int64_t> accepted(drafts.size());
    for (uint32_t seed = 0; seed < 3; ++seed) {
        Conversation conversation(seed);
        const float temperature = seed % 2 == 0 ? 0.0f : 0.3f;
        for (int turn = 0; turn < 4; ++turn) {
            const Reply expected = reply(*plain, conversation.next(temperature));
            for (size_t i = 0; i < drafts.size(); ++i) {
                const Reply drafted = reply(*drafting[i], conversation.next(temperature));
                ASSERT_EQ(drafted.tokens, expected.tokens) << drafts[i] << " seed " << seed << " turn " << turn;
                EXPECT_EQ(drafted.timings.cached_tokens, expected.timings.cached_tokens);
                EXPECT_EQ(drafted.timings.accepted_by[1], drafted.timings.accepted) << "no other source is there";
                EXPECT_LE(drafted.timings.rounds, expected.timings.rounds);
                accepted[i] += drafted.timings.accepted;
            }
            conversation.take(expected.tokens);
        }
    }
    for (size_t i = 0; i < drafts.size(); ++i) EXPECT_GT(accepted[i], 50) << drafts[i];
}

TEST(LocalEngineDrafts, SizesByMeasuredCostChangeNoText) {
    const auto plain = start("off");
    const auto drafting = start("suffix,template,prefill", 2, true);
    EXPECT_EQ(reply(*drafting, Conversation(1).next(0.0f)).tokens, reply(*plain, Conversation(1).next(0.0f)).tokens);
}

TEST(LocalEngineDrafts, SeveralClientsAtOnceGetTheirSoloReplies) {
    const auto plain = start("off");
    const auto drafting = start("suffix,prefill", 3);
    std::vector<Job> jobs;
    std::vector<std::vector<TokenId>> expected;
    for (uint32_t seed = 0; seed < 6; ++seed) {
        jobs.push_back(Conversation(seed).next(0.0f));
        expected.push_back(reply(*plain, jobs.back()).tokens);
    }
    std::vector<std::thread> clients;
    std::vector<std::vector<TokenId>> together(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) clients.emplace_back([&, i] { together[i] = reply(*drafting, jobs[i]).tokens; });
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(together, expected);
}

TEST(LocalEngineDrafts, UnknownWordsAreRefused) {
    EngineOptions options;
    options.model.path = checkpoint::reference_checkpoint("tiny_a");
    options.context_tokens = 256;
    options.draft = "sufix";
    const auto engine = LocalEngine::start(options, nullptr);
    ASSERT_FALSE(engine.has_value());
    EXPECT_EQ(engine.error().code, ErrorCode::invalid_input);
}

}  // namespace
}  // namespace espalier::engine
