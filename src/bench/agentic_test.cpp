// The client against a scripted server: what is sent, what is measured, and every fault that a server can show.
#include "bench/agentic.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/mapped_file.h"
#include "bench/http_client.h"
#include "bench/machine.h"
#include "bench/scripted_server.h"

namespace espalier::bench {
namespace {

using testing::Connection;
using testing::ScriptedServer;
using testing::SeenRequest;
using namespace std::chrono_literals;

// Two conversations: "a" with three requests, "b" with one.
constexpr const char* kDataset =
    R"({"conversation_id":"a","turn":1,"role":"user","content":"fix \u00e9","system":"S","tools":[{"type":"function","function":{"name":"bash"}}]}
{"conversation_id":"a","turn":2,"role":"assistant","reasoning_content":"r1","tool_calls":[{"id":"c0","type":"function","function":{"name":"bash","arguments":"{\"command\": \"ls\"}"}}]}
{"conversation_id":"a","turn":3,"role":"tool","tool_results":[{"tool_call_id":"c0","content":"out"}],"delay_seconds":1.5}
{"conversation_id":"a","turn":4,"role":"assistant","reasoning_content":"r2","tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"command\": \"cat a | head\"}"}}]}
{"conversation_id":"a","turn":5,"role":"tool","tool_results":[{"tool_call_id":"c1","content":"more"}]}
{"conversation_id":"a","turn":6,"role":"assistant","content":"done"}
{"conversation_id":"b","turn":1,"role":"user","content":"hi"}
{"conversation_id":"b","turn":2,"role":"assistant","tool_calls":[{"id":"c0","type":"function","function":{"name":"bash","arguments":"{\"command\": \"make\"}"}}]}
)";

std::string call_events(const std::string& command) {
    const Json arguments{{"command", command}};
    const auto frame = [](const Json& delta, const Json& finish) {
        return "data: " + dump_json({{"choices", Json::array({{{"index", 0}, {"delta", delta}, {"finish_reason", finish}}})}}) +
               "\n\n";
    };
    const Json name{{"index", 0}, {"id", "x"}, {"type", "function"}, {"function", {{"name", "bash"}, {"arguments", ""}}}};
    const Json rest{{"index", 0}, {"function", {{"arguments", dump_json(arguments)}}}};
    return frame({{"role", "assistant"}, {"content", ""}}, nullptr) + frame({{"tool_calls", Json::array({name})}}, nullptr) +
           frame({{"tool_calls", Json::array({rest})}}, nullptr) + frame(Json::object(), "tool_calls") +
           R"(data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":60}},)"
           R"("timings":{"draft_n":30,"draft_n_accepted":12,"rounds":8}})"
           "\n\ndata: [DONE]\n\n";
}

class Agentic : public ::testing::Test {
protected:
    void SetUp() override {
        const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
        dir_ = std::filesystem::temp_directory_path() /
               (std::string("espalier_agentic_") + test->name() + std::to_string(::getpid()));
        std::filesystem::remove_all(dir_);
        std::filesystem::create_directories(dir_);
        std::ofstream(dir_ / "data.jsonl") << kDataset;
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    AgenticOptions options(const std::string& url) const {
        AgenticOptions options;
        options.url = url;
        options.dataset_path = (dir_ / "data.jsonl").string();
        options.out_dir = (dir_ / "out").string();
        options.turn_timeout_s = 20;
        return options;
    }
    std::string file(const std::string& name) const { return *read_file((dir_ / "out" / name).string(), 16 << 20); }
    Json json(const std::string& name) const { return Json::parse(file(name)); }

    std::filesystem::path dir_;
};

// Answers chat requests with `chat`, everything else with 404.
ScriptedServer::Handler chat_only(ScriptedServer::Handler chat) {
    return [chat = std::move(chat)](const SeenRequest& request, Connection& connection) {
        if (request.is_for("/v1/chat/completions")) return chat(request, connection);
        connection.respond(404, "application/json", "{}");
    };
}

std::vector<SeenRequest> chats(ScriptedServer& server) {
    std::vector<SeenRequest> seen = server.seen();
    std::erase_if(seen, [](const SeenRequest& request) { return !request.is_for("/v1/chat/completions"); });
    return seen;
}

TEST_F(Agentic, SendsWhatTheOfficialClientSends) {
    ScriptedServer server(chat_only([](const SeenRequest&, Connection& connection) {
        connection.begin_stream();
        connection.chunk(call_events("ls"));
        connection.end_stream();
    }));
    AgenticOptions run = options(server.url() + "/v1/");
    run.model = "m";
    run.api_key = "secret";
    const auto report = run_agentic(run);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    const std::vector<SeenRequest> seen = chats(server);
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_EQ(
        seen[1].body,
        R"({"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":"fix é"},{"role":"assistant",)"
        R"("tool_calls":[{"id":"c0","type":"function","function":{"name":"bash","arguments":"{\"command\": \"ls\"}"}}],)"
        R"("reasoning_content":"r1"},{"role":"tool","content":"out","tool_call_id":"c0"}],"temperature":0.0,)"
        R"("max_completion_tokens":1024,"stream":true,"seed":42,"tools":[{"type":"function","function":{"name":"bash"}}]})");
    EXPECT_EQ(seen[3].body, R"({"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":0.0,)"
                            R"("max_completion_tokens":1024,"stream":true,"seed":42})");
    EXPECT_NE(seen[0].head.find("X-Session-ID: a\r\n"), std::string::npos);
    EXPECT_NE(seen[0].head.find("Authorization: Bearer secret"), std::string::npos);
    EXPECT_NE(seen[3].head.find("X-Session-ID: b\r\n"), std::string::npos);
    EXPECT_EQ(server.n_connections(), 1);  // kept alive throughout
}

TEST_F(Agentic, WritesEveryResultFile) {
    ScriptedServer server(chat_only([](const SeenRequest&, Connection& connection) {
        connection.begin_stream();
        connection.chunk(call_events("ls; cat x"));
        connection.end_stream();
    }));
    const auto report = run_agentic(options(server.url()));
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_TRUE(report->is_valid);
    EXPECT_EQ(report->n_turns, 4);
    EXPECT_EQ(report->n_conversations, 2);
    // ls | ls,cat = 1/2; cat,head | ls,cat = 1/3; the third reply holds no action; make | ls,cat = 0.
    EXPECT_EQ(report->iou, 0.2778);
    EXPECT_EQ(report->prompt_tokens, 400);
    EXPECT_EQ(report->cached_share, 0.6);
    EXPECT_EQ(report->tokens_per_round, 2.5);
    EXPECT_FALSE(report->new_tokens.has_value());

    const Json scores = json("scores.json");
    EXPECT_EQ(scores["score"], 0.2778);
    EXPECT_EQ(scores["turns"]["expected"], 3);
    EXPECT_EQ(scores["excluded_turns"][0]["turn"], 6);
    const Json summary = json("performance/result_summary.json");
    EXPECT_EQ(summary["n_samples_issued"], 4);
    EXPECT_EQ(summary["finish_reason_counts"]["tool_calls"], 4);
    EXPECT_EQ(summary["output_sequence_lengths"]["total"], 80);
    EXPECT_EQ(summary["state"], "complete");
    const Json example =
        Json::parse(*read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/example-result_summary.json", 1 << 20));
    std::vector<std::string> keys, wanted_keys;
    for (const auto& [key, value] : summary.items()) keys.push_back(key);
    for (const auto& [key, value] : example.items()) wanted_keys.push_back(key);
    EXPECT_EQ(keys, wanted_keys);
    EXPECT_EQ(summary["run_config"], example["run_config"]);

    std::istringstream csv(file("turns.csv"));
    std::string line;
    std::getline(csv, line);
    EXPECT_EQ(line,
              "conversation,turn,prompt_tokens,cached_tokens,new_tokens,output_tokens,ttft_ms,first_delta_ms,total_ms,drafted,"
              "accepted,rounds,iou");
    std::getline(csv, line);
    EXPECT_TRUE(line.starts_with("a,1,100,60,,20,")) << line;
    EXPECT_TRUE(line.ends_with(",30,12,8,0.5000")) << line;
    const std::string replies = file("replies.jsonl");
    const Json reply = Json::parse(replies.substr(0, replies.find('\n')));
    EXPECT_EQ(reply["tool_calls"][0]["function"]["arguments"], R"({"command":"ls; cat x"})");
    EXPECT_EQ(reply["finish_reason"], "tool_calls");
    const Json accuracy = json("accuracy/accuracy_results.json");
    EXPECT_FALSE(accuracy.contains("average_accuracy"));
    EXPECT_EQ(accuracy["accuracy_scores"][0]["dataset_name"], "performance");
    EXPECT_EQ(json("sample_idx_map.json")["performance"].size(), 4u);
    EXPECT_NE(file("events.jsonl").find("\"event_type\":\"sample.complete\""), std::string::npos);
    EXPECT_EQ(report->to_json()["iou"], 0.2778);
    EXPECT_NE(report->to_table().find("IoU"), std::string::npos);
}

TEST_F(Agentic, ConversationsAndTurnsAreChosen) {
    ScriptedServer server(chat_only([](const SeenRequest&, Connection& connection) {
        connection.begin_stream();
        connection.chunk(call_events("ls"));
        connection.end_stream();
    }));
    AgenticOptions run = options(server.url());
    run.conversations = *parse_index_list("0");
    run.turns = *parse_turn_range("3-5");
    const auto report = run_agentic(run);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    const std::vector<SeenRequest> seen = chats(server);
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_NE(seen[0].body.find("r1"), std::string::npos);  // the history holds the turns before the range
    EXPECT_EQ(json("scores.json")["turns"]["issued"], 2);
    run.conversations = {7};
    EXPECT_FALSE(run_agentic(run).has_value());
    run.conversations = {1};
    EXPECT_FALSE(run_agentic(run).has_value());  // conversation b has no turn in 3-5
}

TEST_F(Agentic, BytesInAnySplitAndWithCrLf) {
    for (const size_t step : {size_t{1}, size_t{7}, size_t{100000}}) {
        ScriptedServer server(chat_only([step](const SeenRequest&, Connection& connection) {
            std::string body = ": ping\r\n\r\n";
            for (const char c : call_events("make")) body += c == '\n' ? std::string("\r\n") : std::string(1, c);
            connection.begin_stream("text/event-stream; charset=utf-8");
            for (size_t i = 0; i < body.size(); i += step) connection.chunk(body.substr(i, step));
            connection.end_stream();
        }));
        const auto report = run_agentic(options(server.url()));
        ASSERT_TRUE(report.has_value());
        EXPECT_TRUE(report->is_valid);
        EXPECT_EQ(report->iou, 0.3333);
        EXPECT_EQ(report->n_malformed_frames, 0);
    }
}

TEST_F(Agentic, MeasuresTheFirstToken) {
    ScriptedServer server(chat_only([](const SeenRequest&, Connection& connection) {
        const std::string events = call_events("ls");
        const size_t first = events.find("\n\n") + 2;
        connection.begin_stream();
        std::this_thread::sleep_for(20ms);
        connection.chunk(events.substr(0, first));
        std::this_thread::sleep_for(60ms);
        connection.chunk(events.substr(first));
        connection.end_stream();
    }));
    AgenticOptions run = options(server.url());
    run.conversations = {1};
    const auto report = run_agentic(run);
    ASSERT_TRUE(report.has_value());
    EXPECT_GE(*report->ttft_ms_median, 78.0);
    std::istringstream csv(file("turns.csv"));
    std::string line;
    std::getline(csv, line);
    std::getline(csv, line);
    std::vector<std::string> fields;
    std::istringstream row(line);
    for (std::string field; std::getline(row, field, ',');) fields.push_back(field);
    EXPECT_GE(std::stod(fields[7]), 19.0);                  // first delta: the empty role delta
    EXPECT_LT(std::stod(fields[7]), std::stod(fields[6]));  // before the first token
}

struct FaultCase {
    std::string name;
    std::string kind;  // "" = not a fault
    std::function<void(Connection&)> respond;
};

TEST_F(Agentic, EveryFaultIsCountedAndNamed) {
    const std::vector<FaultCase> cases{
        {"http 500", "http_500",
         [](Connection& c) { c.respond(500, "application/json", R"({"error":{"message":"out of memory"}})"); }},
        {"http 503 text", "http_503", [](Connection& c) { c.respond(503, "text/plain", "loading"); }},
        {"dropped before the header", "dropped", [](Connection& c) { c.close(); }},
        {"dropped in the stream", "dropped",
         [](Connection& c) {
             c.begin_stream();
             c.chunk(call_events("ls").substr(0, 200));
             c.close();
         }},
        {"dropped inside a chunk", "dropped",
         [](Connection& c) {
             c.begin_stream();
             c.send("ffff\r\ndata: {");
             c.close();
         }},
        {"not http", "protocol",
         [](Connection& c) {
             c.send("SMTP ready\r\n\r\n\r\n");
             c.close();
         }},
        {"bad chunk size", "protocol",
         [](Connection& c) {
             c.begin_stream();
             c.send("zz\r\nhello\r\n");
             c.close();
         }},
        {"error in the stream", "stream_error",
         [](Connection& c) {
             c.begin_stream();
             c.chunk("data: {\"error\":{\"message\":\"cancelled\"}}\n\n");
             c.end_stream();
         }},
        {"not a stream", "not_a_stream", [](Connection& c) { c.respond(200, "application/json", R"({"choices":[]})"); }},
    };
    for (const FaultCase& fault : cases) {
        ScriptedServer server(chat_only([&](const SeenRequest& request, Connection& connection) {
            if (request.head.find("X-Session-ID: b") != std::string::npos) return fault.respond(connection);
            connection.begin_stream();
            connection.chunk(call_events("ls"));
            connection.end_stream();
        }));
        const auto report = run_agentic(options(server.url()));
        ASSERT_TRUE(report.has_value()) << fault.name << ": " << report.error().message;
        EXPECT_FALSE(report->is_valid) << fault.name;
        EXPECT_EQ(report->faults, (std::map<std::string, int64_t>{{fault.kind, 1}})) << fault.name << ": " << report->first_fault;
        EXPECT_EQ(json("scores.json")["turns"]["missing"], 1) << fault.name;
        EXPECT_EQ(json("performance/result_summary.json")["n_samples_failed"], 1) << fault.name;
        EXPECT_NE(file("replies.jsonl").find("\"kind\":\"" + fault.kind), std::string::npos) << fault.name;
    }
}

TEST_F(Agentic, TimeoutEndsTheConversation) {
    std::atomic<bool> is_over = false;
    ScriptedServer server(chat_only([&](const SeenRequest& request, Connection& connection) {
        connection.begin_stream();
        if (request.head.find("X-Session-ID: a") != std::string::npos) {
            for (int i = 0; i < 100 && !is_over; ++i) {
                connection.chunk(": still here\n\n");
                std::this_thread::sleep_for(20ms);
            }
            return connection.close();
        }
        connection.chunk(call_events("make"));
        connection.end_stream();
    }));
    AgenticOptions run = options(server.url());
    run.turn_timeout_s = 0.2;
    const auto report = run_agentic(run);
    is_over = true;
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->n_turns, 2);  // the first of "a", then "b"
    EXPECT_EQ(report->faults.at("timeout"), 1);
    EXPECT_FALSE(report->is_valid);
}

TEST_F(Agentic, MalformedFramesAreCountedButTheReplyStands) {
    ScriptedServer server(chat_only([](const SeenRequest&, Connection& connection) {
        connection.begin_stream();
        connection.chunk("data: {\"choices\":[{\"delta\n\ndata: {\"choices\":[{\"delta\":{\"content\":[1]}}]}\n\n" +
                         call_events("ls"));
        connection.end_stream();
    }));
    const auto report = run_agentic(options(server.url()));
    ASSERT_TRUE(report.has_value());
    EXPECT_TRUE(report->is_valid);
    EXPECT_EQ(report->n_malformed_frames, 8);
}

TEST_F(Agentic, ClosedIdleConnectionsAreReopened) {
    ScriptedServer server([](const SeenRequest& request, Connection& connection) {
        if (!request.is_for("/v1/chat/completions")) return connection.respond(404, "application/json", "{}");
        connection.begin_stream();
        connection.chunk(call_events("ls"));
        connection.end_stream();
        connection.close();  // without having announced it
    });
    const auto report = run_agentic(options(server.url()));
    ASSERT_TRUE(report.has_value());
    EXPECT_TRUE(report->is_valid) << report->first_fault;
    EXPECT_EQ(report->n_turns, 4);
}

TEST_F(Agentic, ServerThatGoesAwayStopsTheRun) {
    auto server = std::make_unique<ScriptedServer>(chat_only([](const SeenRequest&, Connection& connection) {
        connection.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + call_events("ls"));
        connection.close();
    }));
    AgenticOptions run = options(server->url());
    run.on_progress = [&](std::string_view) { server.reset(); };
    const auto report = run_agentic(run);
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->faults.at("connect"), 3);
    EXPECT_FALSE(report->is_valid);
    EXPECT_EQ(json("performance/result_summary.json")["state"], "interrupted");
}

TEST_F(Agentic, BadOptionsAndDatasetsAreOneClearError) {
    const auto message = [&](const AgenticOptions& run) {
        const auto report = run_agentic(run);
        return report ? std::string() : report.error().message;
    };
    EXPECT_NE(message(options("https://x")).find("https"), std::string::npos);
    EXPECT_NE(message(options("http://127.0.0.1:1")).find("cannot connect"), std::string::npos);
    AgenticOptions run = options("http://127.0.0.1:1");
    run.tokenizer_path = "x";
    EXPECT_NE(message(run).find("--chat-template"), std::string::npos);
    run = options("http://127.0.0.1:1");
    run.reply_length = ReplyLength::recorded;
    EXPECT_NE(message(run).find("--replay-lengths"), std::string::npos);
    const std::vector<std::pair<std::string, std::string>> files{
        {"", "no conversation"},
        {"{", "line 1"},
        {"[1]\n", "line 1: not an object"},
        {R"({"conversation_id":"a","turn":1,"role":"tool","tool_results":[{"tool_call_id":"x","content":"y"}]})",
         "begins with a tool"},
        {R"({"conversation_id":"a","turn":1,"role":"user","content":5})", "\"content\" is not a string"},
        {R"({"conversation_id":"a","turn":"1","role":"user","content":""})", "\"turn\""},
        {R"({"conversation_id":"a","turn":1,"role":"robot"})", "role 'robot'"},
        {"{\"conversation_id\":\"a\",\"turn\":1,\"role\":\"user\",\"content\":\"x\"}\n\n"
         "{\"conversation_id\":\"a\",\"turn\":1,\"role\":\"assistant\"}",
         "line 3"},
    };
    for (const auto& [text, part] : files) {
        std::ofstream(dir_ / "data.jsonl", std::ios::trunc) << text;
        EXPECT_NE(message(options("http://127.0.0.1:1")).find(part), std::string::npos)
            << text << " -> " << message(options("http://127.0.0.1:1"));
    }
}

// A server whose tokenizer gives one token per byte and whose template joins roles and contents.
TEST_F(Agentic, CountsThroughTheServersEndpoints) {
    ScriptedServer server([](const SeenRequest& request, Connection& connection) {
        const Json body = request.body.empty() ? Json() : Json::parse(request.body);
        if (request.is_for("/apply-template")) {
            std::string prompt;
            for (const Json& message : body["messages"]) {
                prompt += "<" + message["role"].get<std::string>() + ">" + message.value("reasoning_content", "") +
                          message.value("content", "");
                if (message.contains("tool_calls"))
                    prompt += message["tool_calls"][0]["function"]["arguments"].get<std::string>();
            }
            return connection.respond(200, "application/json", dump_json({{"prompt", prompt + "<assistant>"}}));
        }
        if (request.is_for("/tokenize")) {
            Json tokens = Json::array();
            for (const char c : body["content"].get<std::string>())
                tokens.push_back(static_cast<int>(static_cast<unsigned char>(c)));
            return connection.respond(200, "application/json", dump_json({{"tokens", tokens}}));
        }
        if (request.is_for("/v1/models")) return connection.respond(200, "application/json", R"({"data":[{"id":"served"}]})");
        connection.begin_stream();
        connection.chunk(
            "data: {\"choices\":[{\"delta\":{\"content\":\"abc\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
        connection.end_stream();
    });
    AgenticOptions run = options(server.url());
    run.conversations = {0};
    run.reply_length = ReplyLength::recorded;
    const auto report = run_agentic(run);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    const std::vector<SeenRequest> seen = chats(server);
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_NE(seen[0].body.find("\"model\":\"served\""), std::string::npos);
    // "r1" and {"command": "ls"} are 2 + 17 bytes.
    EXPECT_NE(seen[0].body.find("\"max_tokens\":19,"), std::string::npos) << seen[0].body;
    EXPECT_TRUE(seen[0].body.ends_with(",\"ignore_eos\":true}"));
    EXPECT_EQ(seen[0].body.find("max_completion_tokens"), std::string::npos);
    EXPECT_NE(seen[2].body.find("\"max_tokens\":4,"), std::string::npos);  // "done", plain text
    EXPECT_EQ(report->output_tokens, 9);                                   // three replies "abc", counted here: no usage was sent
    // Each prompt repeats the one before it but for what follows; the first is new as a whole.
    const int64_t first = std::string("<system>S<user>fix \xC3\xA9<assistant>").size();
    const int64_t second = std::string("r1{\"command\": \"ls\"}<tool>out<assistant>").size();
    const int64_t third = std::string("r2{\"command\": \"cat a | head\"}<tool>more<assistant>").size();
    EXPECT_EQ(report->new_tokens, first + second + third);
    EXPECT_EQ(report->prompt_tokens, 3 * first + 2 * second + third);
}

// All 1,007 requests against a server that answers at once; what is left is the client's own work.
TEST_F(Agentic, WholeWorkloadAgainstAnInstantServer) {
    ScriptedServer server(chat_only([](const SeenRequest&, Connection& connection) {
        connection.begin_stream();
        connection.chunk(call_events("ls"));
        connection.end_stream();
    }));
    AgenticOptions run = options(server.url());
    run.dataset_path = std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/workload/agentic_coding_2.5h.jsonl";
    const auto begin = std::chrono::steady_clock::now();
    const auto report = run_agentic(run);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->n_turns, 1007);
    EXPECT_EQ(report->n_conversations, 20);
    EXPECT_TRUE(report->is_valid);
    EXPECT_EQ(json("scores.json")["turns"]["scored"], 1006);
    EXPECT_LT(elapsed.count(), 20.0);
}

TEST(Ranges, Lists) {
    EXPECT_EQ(*parse_index_list("0,3-5,4"), (std::vector<int64_t>{0, 3, 4, 5}));
    for (const char* bad : {"", "a", "1,", ",1", "3-1", "-1", "1-", "1--2", "0-9999999999"}) {
        EXPECT_FALSE(parse_index_list(bad).has_value()) << bad;
    }
    EXPECT_EQ(parse_turn_range("3-9")->last, 9);
    EXPECT_EQ(parse_turn_range("7")->last, 7);
    EXPECT_GT(parse_turn_range("3-")->last, 1'000'000);
    for (const char* bad : {"", "-3", "9-3", "x", "1-2-3"}) EXPECT_FALSE(parse_turn_range(bad).has_value()) << bad;
}

TEST(ServerUrl, Forms) {
    const auto parts = [](const char* url) {
        const auto address = parse_server_url(url);
        return address ? address->host + "|" + std::to_string(address->port) + "|" + address->prefix : "error";
    };
    EXPECT_EQ(parts("http://localhost:8080"), "localhost|8080|");
    EXPECT_EQ(parts("127.0.0.1:1/v1/"), "127.0.0.1|1|");
    EXPECT_EQ(parts("http://h/api/v1"), "h|80|/api");
    EXPECT_EQ(parts("http://[::1]:9"), "::1|9|");
    for (const char* bad :
         {"", "http://", "http://h:0", "http://h:70000", "http://h:x", "https://h", "http://a b", "http://[::1"}) {
        EXPECT_EQ(parts(bad), "error") << bad;
    }
}

TEST(Machine, ReadsAProcTree) {
    const auto root = std::filesystem::temp_directory_path() / ("espalier_proc_" + std::to_string(::getpid()));
    std::filesystem::create_directories(root / "net");
    std::filesystem::create_directories(root / "77" / "fd");
    std::filesystem::create_directories(root / "self");
    std::ofstream(root / "net" / "tcp")
        << "  sl  local_address rem_address   st tx rx tr tm retr uid timeout inode\n"
           "   0: 0100007F:1F90 00000000:0000 01 0:0 00:0 0 0 0 111\n"
           "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1\n";
    std::filesystem::create_symlink("socket:[4242]", root / "77" / "fd" / "3");
    std::ofstream(root / "77" / "status") << "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n";
    EXPECT_EQ(listening_pid(8080, root.string()), 77);
    EXPECT_FALSE(listening_pid(8081, root.string()).has_value());
    const auto memory = process_memory(77, root.string());
    ASSERT_TRUE(memory.has_value());
    EXPECT_EQ(memory->rss_bytes, 1024 * 1024);
    EXPECT_EQ(memory->rss_peak_bytes, 2048 * 1024);
    EXPECT_FALSE(process_memory(78, root.string()).has_value());
    std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace espalier::bench
