#include "server/reply_decoder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/json.h"

namespace espalier::server {
namespace {

// The tiny tokenizer with every added token flagged as a control token, as some models' files have it.
std::shared_ptr<const text::Tokenizer> all_special_tokenizer() {
    std::ifstream file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/tokenizer/tiny/tokenizer.json");
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    Result<Json> json = parse_json(bytes, "tokenizer.json");
    CHECK(json.has_value(), "the tiny tokenizer is JSON");
    for (Json& token : (*json)["added_tokens"]) token["special"] = true;
    auto tokenizer = text::Tokenizer::parse(dump_json(*json));
    CHECK(tokenizer.has_value(), "and still a tokenizer");
    return *tokenizer;
}

TEST(ReplyDecoder, TagsOfTheFormatCountEvenWhenFlaggedAsControlTokens) {
    const auto tokenizer = all_special_tokenizer();
    const std::vector<text::Value> tools = {
        *text::parse_json_value(R"({"type": "function", "function": {"name": "bash"}})", "tool")};
    ReplyDecoder decoder(*tokenizer, {}, *text::find_tool_format("qwen-xml"), tools, text::PromptState::think_open);
    std::vector<text::OutputDelta> deltas;
    for (const text::TokenId id :
         tokenizer->encode("why</think>so<|im_start|>\n<tool_call>\n<function=bash>\n</function>\n</tool_call>")) {
        decoder.push(id, deltas);
    }
    EXPECT_EQ(decoder.finish(text::StopCause::eos, -1, deltas), "tool_calls");
    std::string reasoning;
    std::string content;
    std::string calls;
    for (const text::OutputDelta& delta : deltas) {
        if (delta.kind == text::OutputDelta::Kind::reasoning) reasoning += delta.text;
        if (delta.kind == text::OutputDelta::Kind::content) content += delta.text;
        if (delta.kind == text::OutputDelta::Kind::call_begin) calls += delta.call_name;
    }
    EXPECT_EQ(reasoning, "why");
    EXPECT_EQ(content, "so") << "other control tokens are not shown";
    EXPECT_EQ(calls, "bash");
}

TEST(ReplyDecoder, BareCompletionsShowTagsAsText) {
    const auto tokenizer = text::Tokenizer::load(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/tokenizer/tiny");
    ASSERT_TRUE(tokenizer);
    ReplyDecoder decoder(**tokenizer, {"STOP"});
    std::vector<text::OutputDelta> deltas;
    for (const text::TokenId id : (*tokenizer)->encode("  <think> a <tool_call> STOP b")) decoder.push(id, deltas);
    EXPECT_EQ(decoder.finish(text::StopCause::length, -1, deltas), "stop");
    std::string text;
    for (const text::OutputDelta& delta : deltas) text += delta.text;
    EXPECT_EQ(text, "  <think> a <tool_call> ");
}

}  // namespace
}  // namespace espalier::server
