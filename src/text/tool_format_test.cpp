#include "text/tool_format.h"

#include <gtest/gtest.h>

#include "text/marker_scanner.h"
#include "text/output_parser_fence.h"

namespace espalier::text {
namespace {

TEST(ToolFormat, FoundByName) {
    for (const ToolFormat& format : tool_formats()) EXPECT_EQ(find_tool_format(format.name), &format);
    EXPECT_EQ(find_tool_format("qwen"), nullptr);
}

TEST(ToolFormat, DetectedFromTheTemplate) {
    const auto detect = [](std::string_view source) { return detect_tool_format(source).name; };
    EXPECT_EQ(detect("{{ '<tool_call>\\n<function=' + call.name + '>\\n' }}{{ '<parameter=' + key + '>' }}"), "qwen-xml");
    EXPECT_EQ(detect("<tool_call>\\n{\\\"name\\\": <function-name>, \\\"arguments\\\": <args-json-object>}\\n</tool_call>"),
              "hermes-json");
    EXPECT_EQ(detect("{{ '<|start_header_id|>' }} {\"name\": function name, \"parameters\": dictionary}"), "llama3-json");
    EXPECT_EQ(detect("{{ '<|python_tag|>' + tool_call.name }}"), "llama3-json");
    EXPECT_EQ(detect("{% for message in messages %}{{ message.content }}{% endfor %}"), "none");
    EXPECT_EQ(detect(""), "none");
}

std::string scan(const ToolFormat& format, const std::vector<std::string>& pieces) {
    MarkerScanner scanner(format);
    std::vector<MarkedRun> runs;
    for (const std::string& piece : pieces) scanner.push(piece, runs);
    scanner.flush(runs);
    std::string out;
    for (const MarkedRun& run : runs) out += run.is_marker ? "[" + run.text + "]" : run.text;
    return out;
}

TEST(MarkerScanner, FindsMarkersAcrossPieces) {
    const ToolFormat& qwen = *find_tool_format("qwen-xml");
    EXPECT_EQ(scan(qwen, {"a<tool_call>b</think><think>"}), "a[<tool_call>]b[</think>][<think>]");
    EXPECT_EQ(scan(qwen, {"<", "tool", "_call", ">", "<tool_cal", "m</tool", "_call>"}), "[<tool_call>]<tool_calm[</tool_call>]");
    EXPECT_EQ(scan(qwen, {"<<tool_call><tool_"}), "<[<tool_call>]<tool_");
    EXPECT_EQ(scan(*find_tool_format("llama3-json"), {"<|python", "_tag|></tool_call>"}), "[<|python_tag|>]</tool_call>");
}

bool in_fence_after(std::string_view text) {
    FenceTracker fence;
    fence.feed(text);
    return fence.in_fence();
}

TEST(FenceTracker, OpensAndCloses) {
    for (const char* open : {"```", "```xml\n", "a\n  ```\nb", "~~~\n```\n", "````\n```\n", "```\n``` x\n", "```\n~~~\n"}) {
        EXPECT_TRUE(in_fence_after(open)) << open;
    }
    for (const char* closed :
         {"", "``", "a ```\n", "```a`\n", "```\n```\n", "```\nx\n  ```` \n", "~~~\n~~~\n", "`code`\n", "```x```\n"}) {
        EXPECT_FALSE(in_fence_after(closed)) << closed;
    }
}

TEST(FenceTracker, Lines) {
    FenceTracker fence;
    EXPECT_TRUE(fence.is_line_start());
    fence.feed("  ");
    EXPECT_FALSE(fence.is_line_start());
    EXPECT_TRUE(fence.is_line_blank());
    fence.feed("a");
    EXPECT_FALSE(fence.is_line_blank());
    fence.feed("\n");
    EXPECT_TRUE(fence.is_line_start());
    fence.feed("the `");
    EXPECT_TRUE(fence.opens_code());
    fence.feed("tag`");
    EXPECT_FALSE(fence.opens_code());
    fence.feed(" `a");
    EXPECT_FALSE(fence.opens_code());
}

}  // namespace
}  // namespace espalier::text
