#include "decode/tool_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/tokenizer_test_data.h"

namespace espalier::decode {
namespace {

using Place = ToolText::Place;

class ToolTextTest : public testing::Test {
protected:
    static void SetUpTestSuite() { tokenizer_ = new std::shared_ptr<const text::Tokenizer>(text::testing::real_tokenizer()); }
    static void TearDownTestSuite() {
        delete tokenizer_;
        tokenizer_ = nullptr;
    }

    static ToolText make(const std::vector<text::ToolOutline>& tools, const char* format = "qwen-xml") {
        return {**tokenizer_, *text::find_tool_format(format), tools};
    }
    // How many of a reply's tokens are among the candidates of their place, and how many candidates there were.
    struct Coverage {
        size_t covered = 0;
        size_t proposed = 0;
        size_t tokens = 0;
    };
    static Coverage cover(const ToolText& tool_text, const std::string& reply) {
        const std::vector<TokenId> ids = (*tokenizer_)->encode(reply);
        Coverage coverage{0, 0, ids.size()};
        std::array<ToolText::Candidate, ToolText::kCandidatesMax> candidates;
        for (size_t n = 0; n < ids.size(); ++n) {
            const auto split = static_cast<size_t>(n / 2);  // part of it as a drafted path
            const auto all = std::span(ids);
            const auto count =
                static_cast<size_t>(tool_text.candidates(all.first(n - split), all.subspan(n - split, split), candidates));
            coverage.proposed += count;
            coverage.covered +=
                static_cast<size_t>(std::count_if(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                                                  [&](const auto& c) { return c.token == ids[n]; }));
        }
        return coverage;
    }

    static std::shared_ptr<const text::Tokenizer>* tokenizer_;
};
std::shared_ptr<const text::Tokenizer>* ToolTextTest::tokenizer_ = nullptr;

TEST_F(ToolTextTest, AllFixedTokensOfACallAreProposed) {
    const ToolText bash = make({{"bash", {"command"}}});
    const std::string head = "<tool_call>\n<function=bash>\n<parameter=command>\n";
    const std::string tail = "\n</parameter>\n</function>\n</tool_call>";
    const size_t n_head = (*tokenizer_)->encode(head).size();
    EXPECT_EQ(cover(bash, head).covered, n_head);
    for (const std::string value : {"ls -la", "echo \"a\"", "cat <<EOF\nx = 1\nEOF", "f()"}) {
        const std::vector<TokenId> ids = (*tokenizer_)->encode(head + value + tail);
        const std::vector<TokenId> open = (*tokenizer_)->encode(head + value + "\n");
        const Coverage coverage = cover(bash, head + value + tail);
        // All but the value and the line break behind it, which may belong to its last token.
        EXPECT_GE(coverage.covered, ids.size() - (open.size() - n_head)) << value;
    }
}

TEST_F(ToolTextTest, SeveralToolsAndParametersAreAlternatives) {
    const ToolText tools = make({{"read_file", {"path", "offset"}}, {"run", {}}, {"write_file", {"path", "text"}}});
    for (const std::string reply :
         {"<tool_call>\n<function=read_file>\n<parameter=path>\n", "<tool_call>\n<function=write_file>\n<parameter=text>\n",
          "<tool_call>\n<function=run>\n</function>\n</tool_call>"}) {
        const Coverage coverage = cover(tools, reply);
        EXPECT_EQ(coverage.covered, coverage.tokens) << reply;
        EXPECT_GT(coverage.proposed, coverage.tokens) << "a name is one of several";
    }
    const std::string two =
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=text>\nx\n</parameter>\n</"
        "function>\n</tool_call>\n<tool_call>\n<function=run>\n";
    const Coverage coverage = cover(tools, two);
    EXPECT_GE(coverage.covered + 8, coverage.tokens);
}

TEST_F(ToolTextTest, ProseAndThoughtsAreLeftAlone) {
    const ToolText bash = make({{"bash", {"command"}}});
    std::array<ToolText::Candidate, ToolText::kCandidatesMax> candidates;
    const auto after = [&](const std::string& reply) { return bash.candidates((*tokenizer_)->encode(reply), {}, candidates); };
    ASSERT_EQ(after(""), 1);
    EXPECT_EQ(candidates[0].place, Place::reply_start);
    EXPECT_EQ(after("I will look at the file.\n"), 0) << "a line's end outside of a call says nothing";
    ASSERT_EQ(after("The plan.\n</think>"), 1);
    EXPECT_EQ(candidates[0].place, Place::after_thought);
    ASSERT_EQ(after("<tool_call>\n<function=bash>\n<parameter=command>\nls\n"), 1);
    EXPECT_EQ(candidates[0].place, Place::value_end);
    ASSERT_EQ(after("<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n"), 1);
    EXPECT_EQ(candidates[0].place, Place::call_tail);
    ASSERT_EQ(after("<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"), 1);
    EXPECT_EQ(candidates[0].place, Place::call_end);
}

TEST_F(ToolTextTest, JsonCallsHaveAHeadOnly) {
    const ToolText bash = make({{"bash", {"command"}}}, "hermes-json");
    const Coverage coverage = cover(bash, "<tool_call>\n{\"name\": \"bash\", \"arguments\":");
    EXPECT_EQ(coverage.covered, coverage.tokens);
}

TEST_F(ToolTextTest, NothingIsProposedWithoutToolsOrMarkers) {
    std::array<ToolText::Candidate, ToolText::kCandidatesMax> candidates;
    EXPECT_EQ(make({}).candidates({}, {}, candidates), 0);
    EXPECT_EQ(make({{"bash", {"command"}}}, "none").candidates({}, {}, candidates), 0);
    const ToolText no_markers(*text::testing::valid(text::Tokenizer::parse(text::testing::small_file().dump())),
                              *text::find_tool_format("qwen-xml"), {{"bash", {"command"}}});
    EXPECT_EQ(no_markers.candidates({}, {}, candidates), 0);
}

}  // namespace
}  // namespace espalier::decode
