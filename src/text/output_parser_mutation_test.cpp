// Outputs that no model was meant to write: recorded ones with tags deleted, doubled and swapped, and random heaps of fragments.
// The parser may make of them what it likes, as long as it does so whatever the cuts, loses no byte and writes only valid pieces.
#include <algorithm>

#include "text/output_parser_harness_test.h"

namespace espalier::text {
namespace {

const char* const kFiles[] = {"tests/golden/text/toolcall-cases.jsonl", "tests/cases/toolcalls-qwen.jsonl",
                              "tests/cases/toolcalls-hermes.jsonl", "tests/cases/toolcalls-llama3.jsonl"};

std::vector<ParserCase> all_cases() {
    std::vector<ParserCase> cases;
    for (const char* file : kFiles) {
        for (ParserCase& one : load_cases(file)) cases.push_back(std::move(one));
    }
    return cases;
}

struct Span {
    size_t begin = 0;
    size_t end = 0;
};

// Everything between '<' and '>' or the next '<', and JSON punctuation.
std::vector<Span> find_tags(const std::string& text) {
    std::vector<Span> tags;
    for (size_t begin = 0; begin < text.size(); ++begin) {
        if (std::string("{}[]\":,").find(text[begin]) != std::string::npos) tags.push_back({begin, begin + 1});
        if (text[begin] != '<') continue;
        const size_t end = text.find_first_of("<>", begin + 1);
        if (end == std::string::npos) break;
        tags.push_back({begin, end + (text[end] == '>' ? 1 : 0)});
    }
    return tags;
}

void check(const ParserCase& one, std::mt19937& random) {
    const std::string what = one.id + ": " + dump_json(Json(one.output));
    const ParserRun whole = run_parser(one);
    check_run(whole, what);
    const std::string expected = describe(whole);
    EXPECT_EQ(describe(run_parser(one, every_byte(one.output.size()))), expected) << what;
    const ParserRun cut = run_parser(one, random_cuts(one.output.size(), random));
    check_run(cut, what);
    EXPECT_EQ(describe(cut), expected) << what;
}

TEST(OutputParserMutations, DeletedDoubledSwappedTags) {
    std::mt19937 random(1);
    for (const ParserCase& original : all_cases()) {
        const std::vector<Span> tags = find_tags(original.output);
        for (size_t i = 0; i < tags.size() && i < 60; ++i) {
            const std::string& text = original.output;
            const Span tag = tags[i];
            const std::string spelled = text.substr(tag.begin, tag.end - tag.begin);
            ParserCase mutant = original;
            mutant.output = text.substr(0, tag.begin) + text.substr(tag.end);
            check(mutant, random);
            mutant.output = text.substr(0, tag.end) + spelled + text.substr(tag.end);
            check(mutant, random);
            const Span other = tags[random() % tags.size()];
            if (other.begin < tag.end) continue;
            mutant.output = text.substr(0, tag.begin) + text.substr(other.begin, other.end - other.begin) +
                            text.substr(tag.end, other.begin - tag.end) + spelled + text.substr(other.end);
            check(mutant, random);
        }
        if (testing::Test::HasFailure()) break;
    }
}

TEST(OutputParserMutations, CutAnywhere) {
    std::mt19937 random(2);
    for (const ParserCase& original : all_cases()) {
        ParserCase mutant = original;
        for (int i = 0; i < 12; ++i) {
            mutant.output = original.output.substr(0, random() % (original.output.size() + 1));
            mutant.cause = i % 2 == 0 ? StopCause::length : StopCause::eos;
            check(mutant, random);
        }
        if (testing::Test::HasFailure()) break;
    }
}

TEST(OutputParserMutations, TenThousandRandomOutputs) {
    const std::vector<std::string> fragments = {"<tool_call>",
                                                "</tool_call>",
                                                "<think>",
                                                "</think>",
                                                "<|python_tag|>",
                                                "<function=bash>",
                                                "<function=other>",
                                                "</function>",
                                                "<parameter=command>",
                                                "<parameter=timeout>",
                                                "<parameter=n>",
                                                "<parameter=",
                                                "</parameter>",
                                                "<command>",
                                                "</command>",
                                                "{\"name\": \"bash\", ",
                                                "\"arguments\": ",
                                                "\"parameters\": {",
                                                "{\"command\": \"",
                                                "\"}",
                                                "}",
                                                "]",
                                                "[",
                                                "'",
                                                "\\",
                                                "\\u00",
                                                "\n",
                                                "\n",
                                                "\n",
                                                " ",
                                                "\r\n",
                                                "\r",
                                                "\t",
                                                "5",
                                                "-0.50",
                                                "true",
                                                "None",
                                                "ls -la",
                                                "x",
                                                "<",
                                                ">",
                                                "=",
                                                "/",
                                                ",",
                                                ":",
                                                ";",
                                                "```",
                                                "~~~",
                                                "\xC3\xA9",
                                                "\xF0\x9F\x98\x80",
                                                "</para",
                                                "<tool",
                                                "function"};
    ParserCase one;
    one.tools =
        tools_from_json(R"([{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {
        "command": {"type": "string"}, "timeout": {"type": "integer"}, "n": {"type": ["string", "null", "array"]}}}}}])");
    std::mt19937 random(3);
    for (int i = 0; i < 10000 && !testing::Test::HasFailure(); ++i) {
        one.id = "random " + std::to_string(i);
        one.format = tool_formats()[random() % tool_formats().size()].name;
        one.state = random() % 3 == 0 ? PromptState::think_open : PromptState::no_think;
        one.cause = random() % 2 == 0 ? StopCause::eos : StopCause::length;
        one.output.clear();
        if (random() % 2 == 0) one.output = "<tool_call>\n<function=bash>\n<parameter=command>\n";
        const size_t n_fragments = random() % 30;
        for (size_t k = 0; k < n_fragments; ++k) one.output += fragments[random() % fragments.size()];
        check(one, random);
    }
}

}  // namespace
}  // namespace espalier::text
