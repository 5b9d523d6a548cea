// The accuracy phase against a scripted server, and its aggregation.
#include "bench/bfcl.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/mapped_file.h"
#include "bench/scripted_server.h"

namespace espalier::bench {
namespace {

using testing::Connection;
using testing::ScriptedServer;
using testing::SeenRequest;

TEST(BfclAggregate, EveryReferenceRun) {
    const auto text = read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/bfcl-aggregate.jsonl", 1 << 20);
    ASSERT_TRUE(text.has_value());
    std::istringstream stream(*text);
    int n_runs = 0;
    for (std::string line; std::getline(stream, line); ++n_runs) {
        const Json run = Json::parse(line);
        std::map<std::string, SubsetCount> subsets;
        int64_t n_missing = run["missing"].get<int64_t>();
        for (const auto& [name, issued] : run["issued"].items()) {
            SubsetCount& count = subsets[name];
            count.issued = issued.get<int64_t>();
            count.correct = run["correct"][name].get<int64_t>();
            const int64_t missing = std::min(n_missing, count.issued - count.correct);
            count.completed = count.issued - missing;
            n_missing -= missing;
        }
        const BfclAggregate aggregate = aggregate_bfcl(subsets);
        EXPECT_EQ(aggregate.score, run["score"].get<double>()) << run["name"];
        EXPECT_EQ(dump_json(aggregate.breakdown, 1), dump_json(run["breakdown"], 1)) << run["name"];
    }
    EXPECT_EQ(n_runs, 5);
}

// A user's own file: tools and answers in OpenAI's form, no subset, no functions.
constexpr const char* kOwn =
    R"({"id":"own-1","messages":[{"role":"user","content":"weather in Rome"}],"tools":[{"type":"function","function":{"name":"get.weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"number"},"tags":{"type":"array"},"where":{"type":"object","properties":{"x":{"type":"integer"}}}},"required":["city"]}}}],"ground_truth":[{"get.weather":{"city":["Rome","Roma"],"days":[3.5,""],"tags":[["a","b"],""],"where":[{"x":[1]},""]}}]}
{"id":"own-2","messages":[{"role":"user","content":"hello"}],"tools":[]}
{"id":"own-3","messages":[{"role":"user","content":"both"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}],"ground_truth":[{"f":{}},{"g":{}}]}
)";

class BfclRun : public ::testing::Test {
protected:
    void SetUp() override {
        dir_ = std::filesystem::temp_directory_path() / ("espalier_bfcl_" + std::to_string(::getpid()));
        std::filesystem::create_directories(dir_);
        std::ofstream(dir_ / "data.jsonl") << kOwn;
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    BfclOptions options(const std::string& url) const {
        BfclOptions options;
        options.url = url;
        options.dataset_path = (dir_ / "data.jsonl").string();
        options.out_dir = (dir_ / "out").string();
        options.model = "m";
        return options;
    }
    std::string file(const std::string& name) const { return *read_file((dir_ / "out" / name).string(), 1 << 20); }

    std::filesystem::path dir_;
};

std::string calls_event(const std::vector<std::pair<std::string, std::string>>& calls) {
    Json list = Json::array();
    for (size_t i = 0; i < calls.size(); ++i) {
        list.push_back({{"index", i}, {"id", "c"}, {"function", {{"name", calls[i].first}, {"arguments", calls[i].second}}}});
    }
    const Json frame{{"choices", Json::array({{{"delta", {{"tool_calls", list}}}, {"finish_reason", "tool_calls"}}})}};
    return "data: " + dump_json(frame) + "\n\ndata: [DONE]\n\n";
}

void stream(Connection& connection, const std::string& body) {
    connection.begin_stream();
    connection.chunk(body);
    connection.end_stream();
}

TEST_F(BfclRun, OwnToolsAndAnswers) {
    ScriptedServer server([](const SeenRequest& request, Connection& connection) {
        if (request.body.find("Rome") != std::string::npos) {
            return stream(connection,
                          calls_event({{"get_weather", R"({"city":"roma","days":3.5,"tags":["A","b"],"where":{"x":1}})"}}));
        }
        if (request.body.find("both") != std::string::npos) return stream(connection, calls_event({{"g", "{}"}, {"f", "{}"}}));
        stream(connection,
               "data: {\"choices\":[{\"delta\":{\"content\":\"Hello!\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    });
    const auto report = run_bfcl(options(server.url()));
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->n_correct, 3) << file("bfcl_verdicts.jsonl");
    EXPECT_EQ(report->overall, 100.0);
    EXPECT_EQ(server.seen().front().body.substr(0, 60), R"({"model":"m","messages":[{"role":"user","content":"weather i)");
    EXPECT_NE(
        server.seen().front().body.find(R"("temperature":0.0,"max_completion_tokens":1024,"stream":true,"seed":42,"tools":[)"),
        std::string::npos);
    EXPECT_TRUE(server.seen().front().body.ends_with(R"(],"tool_choice":"auto"})"));
    EXPECT_EQ(server.seen().front().head.find("X-Session-ID"), std::string::npos);
    const Json results = Json::parse(file("accuracy/accuracy_results.json"));
    EXPECT_EQ(results["average_accuracy"], 1.0);
    const Json example =
        Json::parse(*read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/example-accuracy_results.json", 1 << 20));
    std::vector<std::string> keys, wanted;
    for (const auto& [key, value] : results["accuracy_scores"][0].items()) keys.push_back(key);
    for (const auto& [key, value] : example["accuracy_scores"][1].items()) wanted.push_back(key);
    EXPECT_EQ(keys, wanted);
}

TEST_F(BfclRun, WrongBrokenAndMissingRepliesAreCounted) {
    ScriptedServer server([](const SeenRequest& request, Connection& connection) {
        if (request.body.find("Rome") != std::string::npos) return stream(connection, calls_event({{"get_weather", "null"}}));
        if (request.body.find("both") != std::string::npos)
            return connection.respond(500, "application/json", R"({"error":{"message":"no"}})");
        stream(connection, calls_event({{"f", "{not json"}}));
    });
    const auto report = run_bfcl(options(server.url()));
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->n_correct, 0);
    EXPECT_EQ(report->n_completed, 2);
    EXPECT_EQ(report->n_exceptions, 1);  // null arguments: the reference scorer would stop, here it is a wrong answer
    EXPECT_EQ(report->errors.at("exception:TypeError"), 1);
    EXPECT_EQ(report->errors.at("hallucination:structured_call"), 1);
    EXPECT_EQ(report->faults.at("http_500"), 1);
    const Json results = Json::parse(file("accuracy/accuracy_results.json"));
    EXPECT_EQ(results["accuracy_scores"][0]["response_counts"]["missing"], 1);
    EXPECT_NE(report->to_table().find("http_500"), std::string::npos);
    EXPECT_EQ(report->to_json()["samples"], 3);
}

TEST_F(BfclRun, BadInput) {
    EXPECT_NE(run_bfcl(options("http://127.0.0.1:1")).error().message.find("cannot connect"), std::string::npos);
    for (const char* bad : {"", "{", "[]", R"({"messages":[]})", R"({"messages":[{}],"tools":1})",
                            R"({"messages":[{}],"tools":[],"ground_truth":{}})"}) {
        const auto samples = parse_bfcl_samples(bad, "file");
        ASSERT_FALSE(samples.has_value()) << bad;
        EXPECT_TRUE(samples.error().message.starts_with("file")) << samples.error().message;
    }
}

}  // namespace
}  // namespace espalier::bench
