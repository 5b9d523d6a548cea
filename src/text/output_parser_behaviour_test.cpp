// What the cases cannot show: markers spelled by ordinary tokens, when pieces come out, and how the work grows.
#include <chrono>

#include "text/output_parser_harness_test.h"

namespace espalier::text {
namespace {

const std::string kWriteTool =
    R"([{"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "content": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array"}}}}}])";
const std::string kHead = "<tool_call>\n<function=write>\n<parameter=content>\n";
const std::string kTail = "\n</parameter>\n</function>\n</tool_call>";

const ToolFormat& qwen() {
    return *find_tool_format("qwen-xml");
}

struct Feeder {
    explicit Feeder(const std::string& format = "qwen-xml", PromptState state = PromptState::no_think)
        : parser(*find_tool_format(format), tools_from_json(kWriteTool), state), scanner(*find_tool_format(format)) {}

    // Pieces that came out for this text; literal markers count as markers.
    std::vector<OutputDelta> push(std::string_view text) {
        std::vector<MarkedRun> runs;
        scanner.push(text, runs);
        std::vector<OutputDelta> deltas;
        for (const MarkedRun& run : runs) parser.push(run.text, run.is_marker, deltas);
        return deltas;
    }

    OutputParser parser;
    MarkerScanner scanner;
};

std::string arguments_of(const std::vector<OutputDelta>& deltas) {
    std::string json;
    for (const OutputDelta& delta : deltas) {
        if (delta.kind == OutputDelta::Kind::call_arguments) json += delta.text;
    }
    return json;
}

TEST(OutputParser, MarkersSpelledByOrdinaryTokensAreText) {
    OutputParser parser(qwen(), tools_from_json(kWriteTool), PromptState::think_open);
    std::vector<OutputDelta> deltas;
    const std::string spelled = "</think><tool_call>\n<function=write>\n</function>\n</tool_call>";
    parser.push(spelled, false, deltas);
    parser.push("</think>", true, deltas);
    parser.push("<think>a</think> " + spelled, false, deltas);
    parser.finish(StopCause::eos, deltas);
    // The bare header of a declared function needs no marker; here it ended the reasoning.
    EXPECT_EQ(parser.parsed().reasoning, "</think><tool_call>");
    EXPECT_EQ(parser.parsed().calls.size(), 2u);
    EXPECT_EQ(parser.parsed().content, "</tool_call>\n<think>a</think> </think><tool_call>\n</tool_call>");
}

TEST(OutputParser, SpelledMarkersInAValueNeitherNestNorClose) {
    OutputParser parser(qwen(), tools_from_json(kWriteTool), PromptState::no_think);
    std::vector<OutputDelta> deltas;
    parser.push("<tool_call>", true, deltas);
    parser.push("\n<function=write>\n<parameter=content>\n<tool_call>\na</parameter>\n</tool_call>\nb\n</parameter>\n", false,
                deltas);
    parser.push("</tool_call>", true, deltas);
    parser.finish(StopCause::eos, deltas);
    ASSERT_EQ(parser.parsed().calls.size(), 1u);
    EXPECT_EQ(parser.parsed().calls[0].arguments, R"({"content": "<tool_call>\na</parameter>\n</tool_call>\nb"})");
    EXPECT_EQ(parser.repairs().count("missing_function_close"), 1u);
}

TEST(OutputParser, OtherAddedTokensAreText) {
    OutputParser parser(qwen(), {}, PromptState::no_think);
    std::vector<OutputDelta> deltas;
    parser.push("<|box_start|>", true, deltas);
    parser.finish(StopCause::eos, deltas);
    EXPECT_EQ(parser.parsed().content, "<|box_start|>");
}

TEST(OutputParser, NameGoesOutWithTheHeader) {
    Feeder feeder;
    EXPECT_TRUE(feeder.push("<tool_call>\n<function=writ").empty());
    const auto deltas = feeder.push("e>");
    ASSERT_EQ(deltas.size(), 1u);
    EXPECT_EQ(deltas[0].kind, OutputDelta::Kind::call_begin);
    EXPECT_EQ(deltas[0].call_name, "write");
    EXPECT_EQ(arguments_of(feeder.push("\n<parameter=path>")), "{\"path\": \"");

    Feeder hermes("hermes-json");
    EXPECT_TRUE(hermes.push("<tool_call>\n{\"name\": \"write\"").empty());
    EXPECT_EQ(hermes.push(", ").size(), 1u);
    EXPECT_EQ(arguments_of(hermes.push("\"arguments\": {\"path\": \"ab")), "{\"path\": \"ab");
    EXPECT_EQ(arguments_of(hermes.push("c")), "c");
}

TEST(OutputParser, ScalarsGoOutWhenComplete) {
    Feeder feeder;
    feeder.push("<tool_call>\n<function=write>\n<parameter=n>\n");
    EXPECT_EQ(arguments_of(feeder.push("30\n</parameter>\n")), "");
    EXPECT_EQ(arguments_of(feeder.push("</function>")), "{\"n\": 30}");
}

TEST(OutputParser, StringsGoOutAsTheyCome) {
    Feeder feeder;
    feeder.push(kHead);
    EXPECT_EQ(arguments_of(feeder.push("a \"b\" < c")), "a \\\"b\\\" < c");
    // What might be the close is held back, and no more than that.
    EXPECT_EQ(arguments_of(feeder.push("x\n</para")), "x");
    EXPECT_EQ(arguments_of(feeder.push("graph>")), "\\n</paragraph>");
    EXPECT_EQ(arguments_of(feeder.push("\n</parameter>  \n ")), "");
    EXPECT_EQ(arguments_of(feeder.push("z")), "\\n</parameter>  \\n z");
    EXPECT_EQ(arguments_of(feeder.push("\n</parameter>\n<p")), "");
    EXPECT_EQ(arguments_of(feeder.push("arameter=")), "\"");
}

TEST(OutputParser, CharactersStayWhole) {
    OutputParser parser(qwen(), tools_from_json(kWriteTool), PromptState::no_think);
    std::vector<OutputDelta> deltas;
    parser.push("caf\xC3", false, deltas);
    EXPECT_EQ(parser.parsed().content, "caf");
    parser.push("\xA9 \xF0\x9F\x98", false, deltas);
    EXPECT_EQ(parser.parsed().content, "caf\xC3\xA9");
    parser.push("\xFF!", false, deltas);
    EXPECT_EQ(parser.parsed().content, "caf\xC3\xA9 \xEF\xBF\xBD\xEF\xBF\xBD!");
    parser.push("\xF0\x9F", false, deltas);
    parser.finish(StopCause::eos, deltas);
    EXPECT_EQ(parser.parsed().content, "caf\xC3\xA9 \xEF\xBF\xBD\xEF\xBF\xBD!\xEF\xBF\xBD");
}

TEST(OutputParser, TargetKeepsEarlierPieces) {
    OutputParser parser(qwen(), {}, PromptState::no_think);
    std::vector<OutputDelta> deltas;
    parser.push("a", false, deltas);
    parser.push("b", false, deltas);
    ASSERT_EQ(deltas.size(), 2u);
    EXPECT_EQ(deltas[0].text, "a");
}

TEST(OutputParser, ContentIsNotHeldBack) {
    Feeder feeder;
    const std::string text = "Prose with < and > and {braces}, <b>tags</b> and `code`";
    std::string sent;
    for (size_t i = 0; i < text.size(); ++i) {
        for (const OutputDelta& delta : feeder.push(text.substr(i, 1))) sent += delta.text;
        // Held back: a space, or a marker's beginning.
        EXPECT_GE(sent.size() + 11, i + 1);
    }
    EXPECT_EQ(sent, text);
}

// Texts that would take minutes if any step looked back at all of them.
TEST(OutputParser, WorkIsLinear) {
#ifdef ESPALIER_SANITIZED
    constexpr size_t kBytes = 50'000;
#else
    constexpr size_t kBytes = 200'000;
#endif
    const auto repeat = [](const std::string& text) {
        std::string out;
        while (out.size() < kBytes) out += text;
        return out;
    };
    const std::vector<std::pair<std::string, std::string>> hostile = {
        {"qwen-xml", kHead + repeat("some ordinary text, \"quoted\" and \\ escaped\n") + kTail},
        {"qwen-xml", kHead + repeat(" ") + kTail},
        {"qwen-xml", kHead + repeat("\n") + kTail},
        {"qwen-xml", kHead + repeat("<") + kTail},
        {"qwen-xml", kHead + repeat("</parameter>") + "x" + kTail},
        {"qwen-xml", kHead + repeat("</parameter>" + std::string(1000, ' ') + "x") + kTail},
        {"qwen-xml", kHead + "</parameter>" + repeat(" ") + "x" + kTail},
        {"qwen-xml", kHead + repeat("\n<parameter=path>x") + kTail},
        {"qwen-xml", kHead + repeat("\n<tool_call>\n") + kTail},
        {"qwen-xml", kHead + repeat("\n</function>\n") + kTail},
        {"qwen-xml", "<tool_call>\n<function=write>\n<parameter=list>\n" + repeat("[") + kTail},
        {"qwen-xml", "<tool_call>\n<function=write>\n<parameter=list>\n" + repeat("[\"") + kTail},
        {"qwen-xml", "<tool_call>\n<function=write>\n" + repeat("<parameter=path>\na\n</parameter>\n")},
        {"qwen-xml", repeat("<tool_call>")},
        {"qwen-xml", repeat("<tool_call>   {\"a\": ")},
        {"qwen-xml", repeat("<tool_call>\n<function=")},
        {"qwen-xml", repeat("<function=write")},
        {"qwen-xml", repeat("\n```\n")},
        {"qwen-xml", repeat("</think>  ")},
        {"qwen-xml", "text" + repeat(" ") + "text"},
        {"hermes-json", "<tool_call>{\"name\": \"write\", \"arguments\": " + repeat("{\"a\": [")},
        {"hermes-json", "<tool_call>{\"name\": \"write\", \"arguments\": {" + repeat("]")},
        {"hermes-json", "<tool_call>{\"name\": \"write\", \"arguments\": {\"a\": \"" + repeat("\" ")},
        {"hermes-json", "<tool_call>{\"arguments\": " + repeat("[")},
        {"llama3-json", repeat("\n{\"a\":")},
        {"llama3-json", repeat("\n{\"name\": \"write\", \"x\": ")},
        {"llama3-json", repeat("\n[")},
    };
    for (const auto& [format, text] : hostile) {
        const std::string what = format + ": " + text.substr(0, 90);
        const auto begin = std::chrono::steady_clock::now();
        ParserCase one;
        one.output = text;
        one.format = format;
        one.tools = tools_from_json(kWriteTool);
        const ParserRun whole = run_parser(one);
        const ParserRun bytes = run_parser(one, every_byte(text.size()));
        const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        EXPECT_EQ(describe(whole) == describe(bytes), true) << what;
        EXPECT_LT(seconds, 20) << what;
    }
}

}  // namespace
}  // namespace espalier::text
