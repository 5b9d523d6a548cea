#include "bench/iou.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/mapped_file.h"
#include "bench/dataset.h"
#include "bench/scores.h"

namespace espalier::bench {
namespace {

std::vector<Json> read_lines(const std::string& name) {
    const auto text = read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/" + name, 64 << 20);
    EXPECT_TRUE(text.has_value()) << name;
    std::vector<Json> lines;
    std::istringstream stream(text ? *text : "");
    for (std::string line; std::getline(stream, line);) {
        auto json = parse_json(line, name);
        EXPECT_TRUE(json.has_value()) << line;
        if (json) lines.push_back(*std::move(json));
    }
    return lines;
}

std::vector<std::string> words(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> list;
    for (std::string word; stream >> word;) list.push_back(word);
    return list;
}

TEST(Iou, EveryReferenceCase) {
    const std::vector<Json> cases = read_lines("text/iou.jsonl");
    ASSERT_EQ(cases.size(), 90u);
    for (const Json& line : cases) {
        const auto score = score_iou_case(line);
        ASSERT_TRUE(score.has_value()) << line["id"];
        if (line["score"].is_null()) EXPECT_FALSE(score->has_value()) << line["id"];
        else EXPECT_EQ(score->value_or(-1), line["score"].get<double>()) << line["id"];
        if (line.contains("recorded_actions")) {
            EXPECT_EQ(Json(bash_actions(line["recorded"])), line["recorded_actions"]) << line["id"];
        }
        if (line.contains("produced_actions") && line["produced"].is_object()) {
            EXPECT_EQ(Json(bash_actions(merge_tool_calls(line["produced"]["tool_calls"]))), line["produced_actions"])
                << line["id"];
        }
    }
}

TEST(Iou, ActionsOfTheRecordedWorkload) {
    const auto dataset = load_dataset(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/workload/agentic_coding_2.5h.jsonl");
    ASSERT_TRUE(dataset.has_value()) << dataset.error().message;
    std::vector<ExpectedTurn> expected;
    for (const Conversation& conversation : dataset->conversations) append_expected(conversation, expected);
    std::map<std::pair<std::string, int64_t>, const ExpectedTurn*> by_turn;
    int n_scored = 0;
    for (const ExpectedTurn& turn : expected) {
        by_turn[{turn.conversation, turn.client_turn}] = &turn;
        n_scored += bash_actions(turn.tool_calls).empty() ? 0 : 1;
    }
    EXPECT_EQ(expected.size(), 1007u);
    EXPECT_EQ(n_scored, 1006);

    const auto csv = read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/iou-workload.csv", 1 << 20);
    ASSERT_TRUE(csv.has_value());
    std::istringstream stream(*csv);
    std::string line;
    std::getline(stream, line);
    int n_rows = 0;
    for (; std::getline(stream, line); ++n_rows) {
        std::istringstream fields(line);
        std::string conversation, client_turn, assistant_turn, n_calls, actions;
        std::getline(fields, conversation, ',');
        std::getline(fields, client_turn, ',');
        std::getline(fields, assistant_turn, ',');
        std::getline(fields, n_calls, ',');
        std::getline(fields, actions);
        const auto turn = by_turn.find({conversation, std::stoll(client_turn)});
        ASSERT_NE(turn, by_turn.end()) << line;
        EXPECT_EQ(turn->second->assistant_turn, std::stoll(assistant_turn));
        EXPECT_EQ(turn->second->tool_calls.size(), std::stoull(n_calls));
        EXPECT_EQ(bash_actions(turn->second->tool_calls), words(actions)) << line;
    }
    EXPECT_EQ(n_rows, 682);
}

TEST(Iou, QuotesBackslashesAndWhiteSpace) {
    using Actions = std::vector<std::string>;
    EXPECT_EQ(command_actions("echo \"a\\\"; ls\" | wc"), Actions({"wc"}));
    EXPECT_EQ(command_actions("echo \"a\\\n; ls \" | wc"), Actions({"ls", "wc"}));  // backslash + line feed: not a quoted piece
    EXPECT_EQ(command_actions("ls\xE2\x80\xA8-la; cat\xE3\x80\x80x"), Actions({"ls", "cat"}));
    EXPECT_EQ(command_actions("A=1 _b2=x env nice /usr/BIN/Python3.11.2 -c 1"), Actions({"python"}));
    EXPECT_EQ(command_actions("1A=2 ls"), Actions());
    EXPECT_EQ(command_actions("ls & cat x"), Actions({"ls"}));
    EXPECT_EQ(command_actions(". ./x"), Actions({"source"}));
    EXPECT_EQ(command_actions(""), Actions());
    EXPECT_EQ(command_actions(std::string(100000, '\'')), Actions());
}

TEST(Iou, AnyJsonIsAnswered) {
    EXPECT_TRUE(bash_actions(Json(3)).empty());
    EXPECT_TRUE(bash_actions(Json::array({1, "x", Json::object(), {{"function", 3}}, {{"function", {{"name", 1}}}}})).empty());
    EXPECT_TRUE(merge_tool_calls(Json("x")).empty());
    const Json odd =
        Json::array({Json::array({3, {{"index", "x"}}, {{"index", 2}, {"function", 5}}, {{"function", {{"arguments", 5}}}}})});
    EXPECT_EQ(merge_tool_calls(odd).size(), 2u);
    EXPECT_FALSE(score_iou_case(Json::array()).has_value());
    EXPECT_FALSE(score_iou_case(Json::object()).has_value());
}

TEST(Iou, ArgumentsAsPythonReadsThem) {
    const auto actions = [](const std::string& arguments) {
        return bash_actions(Json::array({{{"function", {{"name", "bash"}, {"arguments", arguments}}}}}));
    };
    EXPECT_EQ(actions(R"({"command": "ls", "n": NaN})").size(), 1u);
    EXPECT_EQ(actions(R"({"command": "cat a", "command": "ls; ls"})").size(), 2u);
    EXPECT_EQ(actions(R"({"command": false, "cmd": "ls"})").size(), 1u);
    EXPECT_EQ(actions(R"({"command": [], "cmd": "ls"})").size(), 1u);
    EXPECT_EQ(actions(R"({"command": ["ls"], "cmd": "ls"})").size(), 0u);
    EXPECT_EQ(actions(R"({"command": "ls")").size(), 0u);
}

TEST(Iou, RoundsAsPython) {
    EXPECT_EQ(round_decimal(0.03125, 4), 0.0312);
    EXPECT_EQ(round_decimal(2.0 / 3, 4), 0.6667);
    EXPECT_EQ(round_decimal(0.5, 0), 0.0);
    EXPECT_EQ(round_decimal(1.5, 0), 2.0);
}

// The example run of the reference: its events, and the recorded calls rebuilt from the actions that the result lists.
TEST(Scores, ExampleRunFieldByField) {
    const std::string path = std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/example-scores.json";
    const auto wanted_text = read_file(path, 1 << 20);
    ASSERT_TRUE(wanted_text.has_value());
    const auto wanted = parse_json(*wanted_text, path);
    ASSERT_TRUE(wanted.has_value());

    std::vector<ExpectedTurn> expected;
    const auto add = [&](const Json& row, const Json& actions) {
        std::string command;
        for (const Json& action : actions) command += action.get<std::string>() + " x; ";
        const std::string name = actions.empty() ? "python" : "bash";
        const Json call{{"function", {{"name", name}, {"arguments", dump_json({{"command", command}})}}}};
        expected.push_back({row["conversation_id"].get<std::string>(), 1, row["turn"].get<int64_t>(), Json::array({call})});
    };
    for (const Json& row : (*wanted)["per_turn"]) add(row, row["gt_actions"]);
    for (const Json& row : (*wanted)["excluded_turns"]) add(row, Json::array());

    std::vector<ObservedTurn> observed;
    for (const Json& event : read_lines("text/example-events.jsonl")) {
        ObservedTurn turn{event["conversation_id"].get<std::string>(), event["turn"].get<int64_t>(), std::nullopt};
        if (event["event_type"] == "sample.complete" && !event["data"].is_null()) turn.tool_calls = event["data"][3];
        observed.push_back(std::move(turn));
    }
    EXPECT_EQ(dump_json(score_run(expected, observed), 2), *wanted_text);
}

TEST(Scores, RepeatsAreSeparateTurns) {
    const Json call = Json::array({{{"function", {{"name", "bash"}, {"arguments", R"({"command": "ls"})"}}}}});
    const std::vector<ExpectedTurn> expected{{"a", 1, 2, call}};
    const std::vector<ObservedTurn> observed{{"a__repeat_2", 1, call}, {"a", 1, std::nullopt}, {"b", 1, call}, {"a", 5, call}};
    const Json scores = score_run(expected, observed);
    EXPECT_EQ(scores["turns"]["issued"], 2);
    EXPECT_EQ(scores["turns"]["missing"], 1);
    EXPECT_EQ(scores["score"], 0.5);
    EXPECT_EQ(scores["per_turn"][1]["repeat"], 2);
}

}  // namespace
}  // namespace espalier::bench
