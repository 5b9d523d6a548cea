#include "server/cache_miss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/fixture.h"

namespace espalier::server {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const engine::CacheMiss> miss_of(const text::Tokenizer& tokenizer, int32_t prompt_tokens) {
    auto miss = std::make_shared<engine::CacheMiss>();
    miss->prompt_tokens = prompt_tokens;
    miss->cached_tokens = 10;
    miss->common_tokens = 20;
    miss->earlier_tokens = 400;
    miss->before = tokenizer.encode("the time is ");
    miss->earlier = tokenizer.encode("noon");
    miss->now = tokenizer.encode("\"one\"");
    return miss;
}

TEST(CacheMiss, IsShownToTheKeyThatHadIt) {
    ServerOptions options;
    options.api_keys = {"first", "second"};
    testing::TestServer server(std::move(options));
    server.backend->set_chooser([&](const engine::Job& job) {
        testing::Script script = server.reply("ok");
        if (job.cache_owner == "first") script.cache_miss = miss_of(*server.tokenizer, static_cast<int32_t>(job.max_tokens));
        return script;
    });
    for (const int max_tokens : {500, 600}) {
        const Json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", max_tokens}};
        ASSERT_EQ(server.post("/v1/chat/completions", body, "Authorization: Bearer first\r\n").status, 200);
        ASSERT_EQ(server.post("/v1/chat/completions", body, "x-api-key: second\r\n").status, 200);
    }
    const Json shown = *parse_json(server.get("/debug/last-miss", "x-api-key: first\r\n").body, "answer");
    EXPECT_EQ(shown["miss"]["prompt_tokens"], 600);
    EXPECT_EQ(shown["miss"]["cached_tokens"], 10);
    EXPECT_EQ(shown["miss"]["reason"], "the prompt changed");
    EXPECT_EQ(shown["miss"]["text"]["before"], "the time is ");
    EXPECT_EQ(shown["miss"]["text"]["earlier"], "noon");
    EXPECT_EQ(shown["miss"]["text"]["now"], "\"one\"");
    ASSERT_EQ(shown["earlier"].size(), 1u);
    EXPECT_EQ(shown["earlier"][0]["prompt_tokens"], 500);
    const Json other = *parse_json(server.get("/debug/last-miss", "x-api-key: second\r\n").body, "answer");
    EXPECT_TRUE(other["miss"].is_null());
    EXPECT_EQ(server.get("/debug/last-miss").status, 401);
    EXPECT_TRUE(testing::TestServer::eventually(
        [&] { return server.log().find("cache miss: 10 of 600 prompt tokens restored") != std::string::npos; }));
    EXPECT_THAT(server.log(), HasSubstr("after \"the time is \" came \"noon\", now \"\\\"one\\\"\""));
}

TEST(CacheMiss, SaysWhyNothingNearerWasFound) {
    testing::TestServer server;
    engine::CacheMiss miss = *miss_of(*server.tokenizer, 500);
    miss.common_tokens = 300;
    EXPECT_THAT(cache_miss_line(miss, *server.tokenizer), HasSubstr("further back"));
    miss.earlier.clear();
    EXPECT_THAT(cache_miss_line(miss, *server.tokenizer), HasSubstr("given up for memory"));
}

TEST(CacheMiss, KeysOwnTheirCaches) {
    ServerOptions options;
    options.api_keys = {"first", "second"};
    testing::TestServer server(std::move(options));
    server.backend->set_script(server.reply("ok"));
    const Json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"cache_salt", "s"}};
    server.post("/v1/chat/completions", body, "Authorization: Bearer second\r\n");
    server.post("/v1/completions", {{"prompt", "x"}}, "x-api-key: first\r\nX-Session-ID: abc\r\n");
    const auto jobs = server.backend->jobs();
    ASSERT_EQ(jobs.size(), 2u);
    EXPECT_EQ(jobs[0].cache_owner, "second");
    EXPECT_EQ(jobs[0].cache_salt, "s");
    EXPECT_EQ(jobs[1].cache_owner, "first");
    EXPECT_EQ(jobs[1].session_hint, "abc");
}

TEST(CacheMiss, MessageEndsAreNamedToTheEngine) {
    testing::TestServer server;
    server.backend->set_script(server.reply("ok"));
    server.chat({{"messages", {{{"role", "system"}, {"content", "s"}}, {{"role", "user"}, {"content", "hi"}}}}});
    const engine::Job job = server.backend->jobs().front();
    const engine::TokenId stop = server.tokenizer->added_token_id("<|im_end|>");
    int n_ends = 0;
    bool has_user = false;
    bool has_tool = false;
    for (const engine::Boundary& boundary : job.boundaries) {
        ASSERT_GT(boundary.tokens, 0);
        ASSERT_LE(boundary.tokens, static_cast<int32_t>(job.prompt.size()));
        has_user = has_user || boundary.kind == engine::Boundary::Kind::before_user;
        has_tool = has_tool || boundary.kind == engine::Boundary::Kind::before_tool;
        if (boundary.kind != engine::Boundary::Kind::message_end) continue;
        ++n_ends;
        EXPECT_EQ(job.prompt[static_cast<size_t>(boundary.tokens - 1)], stop);
    }
    EXPECT_EQ(n_ends, 2);
    EXPECT_TRUE(has_user);
    EXPECT_TRUE(has_tool);
}

}  // namespace
}  // namespace espalier::server
