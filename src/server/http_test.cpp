// The server as a peer on a socket: life cycle, framing, limits, access, clients that misbehave or leave.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/testing/fixture.h"

namespace espalier::server {
namespace {

using testing::Connection;
using testing::Reply;
using testing::Script;
using testing::TestServer;

const std::string kChatBody = R"({"messages":[{"role":"user","content":"hi"}]})";
const std::string kStreamBody = R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})";

TEST(Http, HealthTellsLoadingThenReady) {
    TestServer server({}, TestServer::Model::loading);
    server.server->set_progress(0.25);
    Reply reply = server.get("/health");
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.json()["status"], "loading");
    EXPECT_EQ(reply.json()["progress"], 0.25);
    reply = server.chat({});
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.json()["error"]["code"], "model_loading");
    EXPECT_TRUE(reply.has_header("Retry-After: 2"));
    server.attach();
    reply = server.get("/health");
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.json()["status"], "ready");
}

TEST(Http, ModelsPropsAndMetricsAnswer) {
    TestServer server;
    EXPECT_EQ(server.get("/v1/models").json()["data"][0]["id"], "tiny");
    EXPECT_EQ(server.get("/models").json()["data"][0]["max_model_len"], testing::kContextTokens);
    EXPECT_EQ(server.get("/v1/models/any/name").json()["id"], "tiny");
    EXPECT_EQ(server.get("/props").json()["tool_format"], "qwen-xml");
    const Reply metrics = server.get("/metrics");
    EXPECT_TRUE(metrics.has_header("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
    EXPECT_NE(metrics.body.find("espalier_requests_total{route=\"/v1/models\",status=\"200\"} 1\n"), std::string::npos);
}

TEST(Http, WrongRouteMethodAndHead) {
    TestServer server;
    Reply reply = server.get("/nope?x=1");
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
    reply = server.get("/v1/chat/completions");
    EXPECT_EQ(reply.status, 405);
    EXPECT_TRUE(reply.has_header("Allow: POST, OPTIONS"));
    Connection connection(server.server->port());
    reply = connection.request("HEAD", "/health");
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.has_header("Content-Length: 18"));
    EXPECT_EQ(connection.request("OPTIONS", "/v1/chat/completions").status, 204);
    EXPECT_EQ(connection.request("GET", "/health?a=b").status, 200);  // the connection is still in step
}

TEST(Http, ConnectionIsKeptAfterAStream) {
    TestServer server;
    server.backend->set_script(server.reply("Hello there"));
    Connection connection(server.server->port());
    for (int i = 0; i < 3; ++i) {
        const Reply reply = connection.request("POST", "/v1/chat/completions", kStreamBody);
        ASSERT_EQ(reply.status, 200);
        EXPECT_TRUE(reply.has_header("Connection: keep-alive"));
        EXPECT_TRUE(reply.has_header("Content-Type: text/event-stream; charset=utf-8"));
        EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
    }
}

TEST(Http, CloseIsAnnouncedAndDone) {
    TestServer server;
    server.backend->set_script(server.reply("Hello"));
    Connection connection(server.server->port());
    const Reply reply = connection.request("POST", "/v1/chat/completions", kStreamBody, "Connection: close\r\n");
    EXPECT_TRUE(reply.has_header("Connection: close"));
    EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
    EXPECT_TRUE(connection.is_closed());
}

TEST(Http, OldProtocolStreamsWithoutChunks) {
    TestServer server;
    server.backend->set_script(server.reply("Hello"));
    Connection connection(server.server->port());
    connection.send("POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: " +
                    std::to_string(kStreamBody.size()) + "\r\n\r\n" + kStreamBody);
    const Reply reply = connection.read_reply();
    EXPECT_EQ(reply.head.find("chunked"), std::string::npos);
    EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
}

TEST(Http, PipelinedRequestsAreAnsweredInOrder) {
    TestServer server;
    server.backend->set_script({server.reply("Hello").ids, 1, 20, 0, 0, ""});
    Connection connection(server.server->port());
    connection.send(Connection::request_bytes("POST", "/v1/chat/completions", kChatBody, "") +
                    Connection::request_bytes("GET", "/health", "", "") + Connection::request_bytes("GET", "/v1/models", "", ""));
    EXPECT_EQ(connection.read_reply().json()["object"], "chat.completion");
    EXPECT_EQ(connection.read_reply().json()["status"], "ready");
    EXPECT_EQ(connection.read_reply().json()["object"], "list");
}

TEST(Http, BodyMayComeInPiecesChunkedOrAfterContinue) {
    TestServer server;
    server.backend->set_script(server.reply("Hello"));
    Connection slow(server.server->port());
    const std::string bytes = Connection::request_bytes("POST", "/v1/chat/completions", kChatBody, "");
    for (size_t i = 0; i < bytes.size(); i += 16) ASSERT_TRUE(slow.send(bytes.substr(i, 16)));
    EXPECT_EQ(slow.read_reply().status, 200);
    Connection chunked(server.server->port());
    chunked.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" +
                 kChatBody.substr(0, 5) + "\r\n");
    chunked.send(fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", kChatBody.size() - 5, kChatBody.substr(5)));
    EXPECT_EQ(chunked.read_reply().status, 200);
    Connection polite(server.server->port());
    polite.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
                std::to_string(kChatBody.size()) + "\r\n\r\n");
    ASSERT_TRUE(polite.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
    polite.send(kChatBody);
    EXPECT_TRUE(polite.read_until("\"finish_reason\":\"stop\""));
}

TEST(Http, OversizeAndMalformedRequestsAreRefused) {
    ServerOptions options;
    options.limits.body_bytes = 1000;
    options.limits.header_bytes = 2000;
    TestServer server(options);
    Connection big(server.server->port());
    Reply reply = big.request("POST", "/tokenize", std::string(5000, 'x'));
    EXPECT_EQ(reply.status, 413);
    EXPECT_EQ(reply.json()["error"]["code"], "request_too_large");
    Connection long_header(server.server->port());
    EXPECT_EQ(long_header.request("GET", "/health", "", "X-Long: " + std::string(5000, 'x') + "\r\n").status, 431);
    Connection garbage(server.server->port());
    garbage.send("\x16\x03\x01 this is not HTTP\r\n\r\n");
    EXPECT_EQ(garbage.read_reply().status, 400);
    EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Http, DropsSlowSendersAndIdleConnections) {
    ServerOptions options;
    options.timeouts.header_ms = 100;
    options.timeouts.body_ms = 100;
    options.timeouts.idle_ms = 100;
    TestServer server(options);
    Connection idle(server.server->port());
    EXPECT_TRUE(idle.is_closed());
    Connection in_header(server.server->port());
    in_header.send("GET /health HT");
    EXPECT_TRUE(in_header.is_closed());
    Connection in_body(server.server->port());
    in_body.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    EXPECT_TRUE(in_body.is_closed());
}

TEST(Http, ConnectionsBeyondTheLimitAreTurnedAway) {
    ServerOptions options;
    options.limits.connections = 2;
    TestServer server(options);
    Connection first(server.server->port());
    Connection second(server.server->port());
    EXPECT_EQ(first.request("GET", "/health").status, 200);
    EXPECT_EQ(second.request("GET", "/health").status, 200);
    Connection third(server.server->port());
    EXPECT_EQ(third.read_reply().status, 503);
    first.leave();
    EXPECT_TRUE(TestServer::eventually([&] { return server.get("/health").status == 200; }));
}

TEST(Http, HostOriginAndKeyAreChecked) {
    ServerOptions options;
    options.api_keys = {"secret-key"};
    options.allowed_hosts = {"box.example"};
    options.allowed_origins = {"https://ok.example"};
    TestServer server(options);
    const auto status = [&](std::string_view method, std::string_view host, std::string_view headers) {
        Connection connection(server.server->port());
        connection.send(std::string(method) + " /v1/models HTTP/1.1\r\nHost: " + std::string(host) + "\r\n" +
                        std::string(headers) + "\r\n");
        return connection.read_reply().status;
    };
    EXPECT_EQ(status("GET", "localhost:80", ""), 401);
    EXPECT_EQ(status("GET", "localhost", "Authorization: Bearer wrong-key!\r\n"), 401);
    EXPECT_EQ(status("GET", "localhost", "Authorization: Bearer secret-key\r\n"), 200);
    EXPECT_EQ(status("GET", "127.0.0.1:1", "X-Api-Key: secret-key\r\n"), 200);
    EXPECT_EQ(status("GET", "[::1]:1", "X-Api-Key: secret-key\r\n"), 200);
    EXPECT_EQ(status("GET", "BOX.example:80", "X-Api-Key: secret-key\r\n"), 200);
    EXPECT_EQ(status("GET", "evil.example", "X-Api-Key: secret-key\r\n"), 403);
    EXPECT_EQ(status("POST", "localhost", "X-Api-Key: secret-key\r\nOrigin: http://evil.example\r\n"), 403);
    EXPECT_EQ(status("POST", "localhost", "X-Api-Key: secret-key\r\nOrigin: null\r\n"), 403);
    EXPECT_EQ(status("POST", "localhost", "X-Api-Key: secret-key\r\nOrigin: http://localhost\r\n"), 405);
    EXPECT_EQ(status("POST", "localhost", "X-Api-Key: secret-key\r\nOrigin: https://ok.example\r\n"), 405);
    EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Http, PublicAddressNeedsAKey) {
    ServerOptions options;
    options.host = "0.0.0.0";
    options.port = 0;
    const auto refused = HttpServer::start(options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_input);
    options.key_policy = KeyPolicy::may_omit;
    EXPECT_TRUE(HttpServer::start(options));
    options.key_policy = KeyPolicy::loopback_may_omit;
    options.api_keys = {"key"};
    EXPECT_TRUE(HttpServer::start(options));
}

TEST(Http, PortInUseAndBadAddressAreClearErrors) {
    TestServer server;
    ServerOptions options;
    options.port = server.server->port();
    const auto taken = HttpServer::start(options);
    ASSERT_FALSE(taken);
    EXPECT_NE(taken.error().message.find(std::to_string(options.port)), std::string::npos);
    options.host = "not an address";
    options.key_policy = KeyPolicy::may_omit;
    EXPECT_FALSE(HttpServer::start(options));
}

struct PhaseCase {
    const char* name;
    int prefill_ms;
    int step_ms;
    bool is_stream;
};

class ClientLeaves : public ::testing::TestWithParam<PhaseCase> {};

TEST_P(ClientLeaves, CancelsItsJobAndNoOther) {
    TestServer server;
    const PhaseCase& phase = GetParam();
    Script script = server.reply("one two three four five six seven eight nine ten");
    script.prefill_ms = phase.prefill_ms;
    script.step_ms = phase.step_ms;
    server.backend->set_script(script);
    Connection stays(server.server->port());
    stays.send(Connection::request_bytes("POST", "/v1/chat/completions", kChatBody, ""));
    ASSERT_TRUE(TestServer::eventually([&] { return server.backend->n_running() == 1; }));
    Connection leaves(server.server->port());
    leaves.send(Connection::request_bytes("POST", "/v1/chat/completions", phase.is_stream ? kStreamBody : kChatBody, ""));
    ASSERT_TRUE(TestServer::eventually([&] { return server.backend->n_running() == 2; }));
    if (phase.is_stream && phase.prefill_ms == 0) {
        ASSERT_TRUE(leaves.read_until("one"));
    }
    leaves.leave();
    EXPECT_TRUE(TestServer::eventually([&] { return server.backend->n_cancelled() == 1; }));
    const Reply reply = stays.read_reply();
    EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], "one two three four five six seven eight nine ten");
    EXPECT_EQ(server.backend->n_cancelled(), 1);
    EXPECT_TRUE(TestServer::eventually([&] { return server.log().find(" 499 ") != std::string::npos; }));
}

INSTANTIATE_TEST_SUITE_P(Phases, ClientLeaves,
                         ::testing::Values(PhaseCase{"prefill_whole", 600, 0, false}, PhaseCase{"prefill_stream", 600, 0, true},
                                           PhaseCase{"decode_whole", 0, 60, false}, PhaseCase{"decode_stream", 0, 60, true}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Http, LongPromptGetsHeadersAtOnceAndKeepAliveComments) {
    ServerOptions options;
    options.timeouts.keep_alive_ms = 20;
    TestServer server(options);
    Script script = server.reply("done");
    script.prefill_ms = 300;
    server.backend->set_script(script);
    Connection connection(server.server->port());
    connection.send(Connection::request_bytes("POST", "/v1/chat/completions", kStreamBody, ""));
    ASSERT_TRUE(connection.read_until("\"role\":\"assistant\""));
    ASSERT_TRUE(connection.read_until(": prompt 0 of "));
    EXPECT_EQ(server.backend->n_running(), 1);
    const Reply reply = connection.read_reply();
    EXPECT_EQ(testing::Streamed(reply.events()).content, "done");
}

TEST(Http, ReaderThatStopsIsDroppedAndItsJobCancelled) {
    ServerOptions options;
    options.timeouts.write_ms = 200;
    options.limits.unsent_bytes = 64 << 10;
    TestServer server(options);
    Script script;
    script.tokens_per_step = 1;
    for (int i = 0; i < 200'000; ++i) script.ids.push_back(server.tokenizer->encode("a").front());
    server.backend->set_chooser([script](const engine::Job&) { return script; });
    Connection connection(server.server->port());
    connection.shrink_receive_buffer();
    Json body = {{"stream", true}, {"max_tokens", 4000}, {"n", 8}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
    connection.send(Connection::request_bytes("POST", "/v1/chat/completions", dump_json(body), ""));
    EXPECT_TRUE(TestServer::eventually([&] { return server.log().find("client_gone") != std::string::npos; }));
}

TEST(Http, StopLetsRunningAnswersFinishOrCancelsThem) {
    TestServer server;
    Script script = server.reply("finished in time");
    script.step_ms = 10;
    server.backend->set_script(script);
    Connection connection(server.server->port());
    connection.send(Connection::request_bytes("POST", "/v1/chat/completions", kChatBody, ""));
    ASSERT_TRUE(TestServer::eventually([&] { return server.backend->n_running() == 1; }));
    server.server->stop(5000);
    EXPECT_EQ(connection.read_reply().json()["choices"][0]["message"]["content"], "finished in time");

    TestServer hasty;
    script.step_ms = 1000;
    hasty.backend->set_script(script);
    Connection cut(hasty.server->port());
    cut.send(Connection::request_bytes("POST", "/v1/chat/completions", kStreamBody, ""));
    ASSERT_TRUE(cut.read_until("role"));
    hasty.server->stop(0);
    EXPECT_TRUE(TestServer::eventually([&] { return hasty.backend->n_cancelled() == 1; }));
}

}  // namespace
}  // namespace espalier::server
