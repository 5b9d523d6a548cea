// Token counts with the real vocabulary and template, against the table of the workload's prompts.
#include "bench/token_counter.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "bench/agentic.h"
#include "bench/scripted_server.h"

namespace espalier::bench {
namespace {

const std::string kGolden = std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/";

class TokenCounts : public ::testing::Test {
protected:
    void SetUp() override {
        dir_ = std::filesystem::temp_directory_path() / ("espalier_counts_" + std::to_string(::getpid()));
        std::filesystem::create_directories(dir_);
        const std::string command = "gzip -dc '" + kGolden + "text/qwen3.5-tokenizer.json.gz' > '" + tokenizer() + "'";
        ASSERT_EQ(std::system(command.c_str()), 0);
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    std::string tokenizer() const { return (dir_ / "tokenizer.json").string(); }
    static std::string chat_template() { return kGolden + "text/templates/qwen3.6.jinja"; }

    std::filesystem::path dir_;
};

TEST_F(TokenCounts, MessagesWithoutTheirFrame) {
    auto counter = local_token_counter(tokenizer(), chat_template());
    ASSERT_TRUE(counter.has_value()) << counter.error().message;
    const Json text{{"role", "assistant"}, {"content", "Hello world"}};
    EXPECT_EQ(*(*counter)->text_tokens("Hello world"), 2);
    EXPECT_EQ(*(*counter)->message_tokens(text), 2);
    EXPECT_EQ(*reply_tokens(**counter, text), 2);
    EXPECT_EQ(*(*counter)->message_tokens({{"role", "assistant"}, {"content", ""}}), 0);
    Json call{{"role", "assistant"}, {"content", ""}, {"reasoning_content", "ok"}};
    // The frame of an empty message holds one line break token between the think tags; with a thought there are two.
    EXPECT_EQ(*reply_tokens(**counter, call), 2);
    const Json function{{"name", "bash"}, {"arguments", "{\"command\": \"ls\"}"}};
    call["tool_calls"] = Json::array({{{"type", "function"}, {"function", function}}});
    const int64_t with_call = *reply_tokens(**counter, call);
    EXPECT_EQ(with_call,
              2 + *(*counter)->text_tokens(
                      "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"));
}

// Two conversations of the workload; the server says nothing of tokens, so that the client counts.
TEST_F(TokenCounts, PromptsAndTheirNewPart) {
    testing::ScriptedServer server([](const testing::SeenRequest& request, testing::Connection& connection) {
        if (!request.is_for("/v1/chat/completions")) return connection.respond(404, "application/json", "{}");
        connection.begin_stream();
        connection.chunk(
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n"
            "data: {\"choices\":[{\"delta\":{\"content\":\" world again\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
        connection.end_stream();
    });
    AgenticOptions options;
    options.url = server.url();
    options.dataset_path = kGolden + "workload/agentic_coding_2.5h.jsonl";
    options.out_dir = (dir_ / "out").string();
    options.conversations = {0, 2};
    options.turns = {1, 21};
    options.tokenizer_path = tokenizer();
    options.chat_template_path = chat_template();
    const auto report = run_agentic(options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->output_tokens, 3 * report->n_turns);
    EXPECT_GT(*report->tpot_ms_median, 0.0);

    std::map<std::string, std::pair<std::string, std::string>> wanted;  // "conversation,turn" -> prompt tokens, new tokens
    std::ifstream table(kGolden + "text/workload-prompts.csv");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        std::vector<std::string> fields;
        std::istringstream row(line);
        for (std::string field; std::getline(row, field, ',');) fields.push_back(field);
        const int64_t common = fields[2] == "1" ? 0 : std::stoll(fields[7]);
        wanted[fields[1] + "," + fields[2]] = {fields[6], std::to_string(std::stoll(fields[6]) - common)};
    }
    std::ifstream turns(options.out_dir + "/turns.csv");
    std::getline(turns, line);
    int n_turns = 0;
    for (; std::getline(turns, line); ++n_turns) {
        std::vector<std::string> fields;
        std::istringstream row(line);
        for (std::string field; std::getline(row, field, ',');) fields.push_back(field);
        const auto& [prompt, added] = wanted.at(fields[0] + "," + fields[1]);
        EXPECT_EQ(fields[2], prompt) << line;
        EXPECT_EQ(fields[4], added) << line;
    }
    EXPECT_EQ(n_turns, 22);
}

}  // namespace
}  // namespace espalier::bench
