#include "engine/warm_up.h"

#include <gtest/gtest.h>

#include "checkpoint/reference_checkpoint.h"
#include "engine/local_engine.h"

namespace espalier::engine {
namespace {

EngineOptions options() {
    EngineOptions result;
    result.model.path = checkpoint::reference_checkpoint("tiny_a");
    result.model.n_threads = 2;
    result.context_tokens = 1024;
    result.sequences_max = 1;
    result.cache_bytes = int64_t{64} << 20;
    return result;
}

// What the engine replies to a prompt, greedy.
std::vector<TokenId> reply_to(const std::vector<TokenId>& prompt, int32_t n) {
    auto engine = LocalEngine::start(options(), nullptr);
    EXPECT_TRUE(engine) << engine.error().message;
    Job job;
    job.prompt = prompt;
    job.max_tokens = n;
    auto stream = (*engine)->submit(job);
    std::vector<TokenId> tokens;
    for (;;) {
        const auto event = (*stream)->wait_next(30'000);
        if (!event || event->kind == JobEvent::Kind::failed) return tokens;
        tokens.insert(tokens.end(), event->tokens.begin(), event->tokens.end());
        if (event->kind == JobEvent::Kind::finished) return tokens;
    }
}

TEST(SelfTest, AKnownReplyPassesAndLeavesNothing) {
    EngineOptions with = options();
    with.self_test.prompt = {5, 6, 7, 8, 9, 10};
    with.self_test.reply = reply_to(with.self_test.prompt, 6);
    ASSERT_EQ(with.self_test.reply.size(), 6u);
    const auto engine = LocalEngine::start(with, nullptr);
    ASSERT_TRUE(engine) << engine.error().message;
    const BackendGauges gauges = (*engine)->gauges();
    EXPECT_EQ(gauges.prompt_tokens_total, 0);
    EXPECT_EQ(gauges.cache_snapshots, 0);
}

TEST(SelfTest, AnotherTokenRefusesToServe) {
    EngineOptions with = options();
    with.self_test.prompt = {5, 6, 7, 8, 9, 10};
    with.self_test.reply = reply_to(with.self_test.prompt, 6);
    ASSERT_EQ(with.self_test.reply.size(), 6u);
    const TokenId right = with.self_test.reply[2];
    with.self_test.reply[2] = right == 0 ? 1 : 0;
    const auto engine = LocalEngine::start(with, nullptr);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, ErrorCode::internal);
    for (const char* part : {"token 2 of a known reply is ", "kernels ", "activations ", "espalier doctor", "ESPALIER_ISA"})
        EXPECT_NE(engine.error().message.find(part), std::string::npos) << engine.error().message;
}

TEST(SelfTest, IdsOutsideTheVocabularyAreRefused) {
    for (const TokenId id : {-1, 1 << 30}) {
        EngineOptions with = options();
        with.self_test.prompt = {1, id};
        const auto engine = LocalEngine::start(with, nullptr);
        ASSERT_FALSE(engine);
        EXPECT_EQ(engine.error().code, ErrorCode::invalid_input);
    }
}

}  // namespace
}  // namespace espalier::engine
