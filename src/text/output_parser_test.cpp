#include "text/output_parser.h"

#include "text/output_parser_harness_test.h"

namespace espalier::text {
namespace {

Json null_if_empty(const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
}

void expect_case(const ParserCase& one, const ParserRun& run) {
    EXPECT_EQ(null_if_empty(run.parsed.content), one.expected.at("content")) << one.id;
    EXPECT_EQ(null_if_empty(run.parsed.reasoning), one.expected.at("reasoning")) << one.id;
    EXPECT_EQ(run.parsed.finish_reason, one.expected.at("finish_reason")) << one.id;
    const Json& calls = one.expected.at("tool_calls");
    ASSERT_EQ(run.parsed.calls.size(), calls.size()) << one.id << "\n" << describe(run);
    for (size_t i = 0; i < calls.size(); ++i) {
        const ParsedCall& call = run.parsed.calls[i];
        EXPECT_EQ(call.name, calls[i].at("name")) << one.id;
        if (calls[i].contains("arguments_raw")) {
            EXPECT_EQ(call.arguments, calls[i].at("arguments_raw")) << one.id;
            EXPECT_FALSE(call.is_complete) << one.id;
        } else {
            // Compared as text: a number read as a double would hide a lost digit. Ours are written as json.dumps writes them.
            const auto parsed = parse_json(call.arguments, "arguments");
            ASSERT_TRUE(parsed) << one.id << ": " << call.arguments;
            EXPECT_EQ(parsed->dump(), calls[i].at("arguments").dump()) << one.id;
            EXPECT_TRUE(call.is_complete) << one.id;
        }
    }
    for (const Json& kind : one.repairs)
        EXPECT_TRUE(run.repairs.contains(kind.get<std::string>())) << one.id << ": " << describe(run);
}

class CaseFile : public testing::TestWithParam<const char*> {};

TEST_P(CaseFile, WholeAndUnderEverySplit) {
    for (const ParserCase& one : load_cases(GetParam())) {
        SCOPED_TRACE(one.id);
        const ParserRun whole = run_parser(one);
        expect_case(one, whole);
        check_run(whole, one.id + " whole");
        const std::string expected = describe(whole);
        const auto check_cut = [&](const std::vector<size_t>& cuts, const std::string& how) {
            const ParserRun run = run_parser(one, cuts);
            EXPECT_EQ(describe(run), expected) << one.id << " " << how;
            check_run(run, one.id + " " + how);
        };
        check_cut(every_byte(one.output.size()), "byte by byte");
        for (size_t cut = 1; cut < one.output.size(); ++cut) check_cut({cut}, "cut at " + std::to_string(cut));
        std::mt19937 random(7);
        for (int i = 0; i < 20; ++i) check_cut(random_cuts(one.output.size(), random), "random " + std::to_string(i));
    }
}

INSTANTIATE_TEST_SUITE_P(OutputParser, CaseFile,
                         testing::Values("tests/golden/text/toolcall-cases.jsonl", "tests/cases/toolcalls-qwen.jsonl",
                                         "tests/cases/toolcalls-hermes.jsonl", "tests/cases/toolcalls-llama3.jsonl",
                                         "tests/cases/toolcalls-none.jsonl"));

}  // namespace
}  // namespace espalier::text
