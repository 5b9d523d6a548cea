#include "probe/toolcalls_command.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"

namespace espalier::probe {
namespace {

std::string run(const std::string& input, const ToolcallsOptions& options, std::string* error = nullptr) {
    std::istringstream in(input);
    std::ostringstream out;
    const Status status = run_toolcalls(options, in, out);
    if (error != nullptr) *error = status ? "" : status.error().message;
    else EXPECT_TRUE(status.has_value()) << status.error().message;
    return out.str();
}

TEST(ToolcallsCommand, RecordedCasesUnderEverySplit) {
    std::ifstream file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/toolcall-cases.jsonl");
    ASSERT_TRUE(file);
    std::stringstream text;
    text << file.rdbuf();
    const std::string input = text.str();
    const std::string whole = run(input, {});
    std::istringstream cases(input), lines(whole);
    int n_cases = 0;
    for (std::string expected_text, line_text; std::getline(cases, expected_text) && std::getline(lines, line_text); ++n_cases) {
        const Json one = *parse_json(expected_text, "case");
        Json expected = one.at("expected");
        expected["id"] = one.at("id");
        const auto line = parse_json(line_text, "line");
        ASSERT_TRUE(line) << line_text;
        EXPECT_EQ(nlohmann::json(*line), nlohmann::json(expected)) << line_text;
    }
    EXPECT_EQ(n_cases, 82);
    for (const char* split : {"bytes", "halves", "seed:1", "seed:99"}) EXPECT_EQ(run(input, {"qwen-xml", split}), whole) << split;
}

TEST(ToolcallsCommand, ArgumentsKeepTheirDigits) {
    const std::string tools =
        R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}}])";
    const std::string output =
        R"(<tool_call>\n<function=f>\n<parameter=n>\n123456789012345678901234567890\n</parameter>\n</function>\n</tool_call>)";
    EXPECT_EQ(run("{\"id\": 1, \"model_output\": \"" + output + "\", \"tools\": " + tools + "}\n", {}),
              R"({"id": 1, "content": null, "tool_calls": [{"name": "f", "arguments": {"n": 123456789012345678901234567890}}], )"
              R"("reasoning": null, "finish_reason": "tool_calls"})"
              "\n");
}

TEST(ToolcallsCommand, BadInputIsNamed) {
    std::string error;
    run("", {"no-such", "whole"}, &error);
    EXPECT_NE(error.find("hermes-json"), std::string::npos) << error;
    run("", {"qwen-xml", "seed:x"}, &error);
    EXPECT_NE(error.find("seed:N"), std::string::npos) << error;
    EXPECT_NE(run("{\"model_output\": \"a\"}\n[]\n", {}, &error).find("\"content\": \"a\""), std::string::npos);
    EXPECT_NE(error.find("line 2"), std::string::npos) << error;
    for (const char* line : {"{", "{}", R"({"model_output": 1})", R"({"model_output": "", "tools": 1})",
                             R"({"model_output": "", "prompt_state": "x"})", R"({"model_output": "", "stop_cause": "x"})"}) {
        run(line, {}, &error);
        EXPECT_NE(error.find("line 1"), std::string::npos) << line;
    }
}

}  // namespace
}  // namespace espalier::probe
