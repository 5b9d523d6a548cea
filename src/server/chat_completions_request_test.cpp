// The chat request body: what is read, what is refused and how the refusal names the place.
#include "server/chat_completions_request.h"

#include <gtest/gtest.h>

namespace espalier::server {
namespace {

std::optional<ApiError> parse(std::string_view body, ChatCompletionsRequest& out) {
    return parse_chat_completions(body, ServerLimits(), SamplingDefaults(), text::Thinking::off, out);
}

std::string with_message(const std::string& message) {
    return R"({"messages":[)" + message + "]}";
}

struct BadCase {
    const char* body;
    const char* param;
    const char* code;
};

TEST(ChatRequest, BadBodiesNameThePlace) {
    const std::string deep = with_message(R"({"role":"user","content":)" + std::string(300, '[') + std::string(300, ']') + "}");
    std::string wide = R"({"messages":[{"role":"user","content":"x"}],"metadata":{"a":0)";
    for (int i = 0; i < 2000; ++i) wide += ",\"" + std::to_string(i) + "\":0";
    wide += "}}";
    std::string many = R"({"messages":[{"role":"user","content":"x"}],"metadata":[0)";
    for (int i = 0; i < 1'000'000; ++i) many += ",0";
    many += "]}";
    const BadCase cases[] = {
        {"", "", "invalid_value"},
        {"{", "", "invalid_value"},
        {"[]", "", "invalid_value"},
        {"{\"messages\": \"\xff\"}", "", "invalid_value"},
        {deep.c_str(), "", "invalid_value"},
        {wide.c_str(), "", "invalid_value"},
        {many.c_str(), "", "invalid_value"},
        {R"({})", "messages", "invalid_value"},
        {R"({"messages":[]})", "messages", "invalid_value"},
        {R"({"messages":{}})", "messages", "invalid_type"},
        {R"({"messages":[1]})", "messages[0]", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"},{"role":"alien"}]})", "messages[1].role", "invalid_value"},
        {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content", "invalid_type"},
        {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})", "messages[0].content[0]",
         "unsupported_parameter"},
        {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text", "invalid_value"},
        {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})", "messages[0].tool_calls[0].function", "invalid_value"},
        {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[]}}]}]})",
         "messages[0].tool_calls[0].function.arguments", "invalid_type"},
        {R"({"messages":[{"role":"user","content":"a"}],"temperature":"hot"})", "temperature", "invalid_type"},
        {R"({"messages":[{"role":"user","content":"a"}],"temperature":-1})", "temperature", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"top_p":NaN})", "top_p", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"max_tokens":0})", "max_tokens", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1.5})", "max_tokens", "invalid_type"},
        {R"({"messages":[{"role":"user","content":"a"}],"seed":1e300})", "seed", "invalid_type"},
        {R"({"messages":[{"role":"user","content":"a"}],"seed":99999999999999999999999})", "seed", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"stop":[""]})", "stop[0]", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"stop":7})", "stop", "invalid_type"},
        {R"({"messages":[{"role":"user","content":"a"}],"stream":"yes"})", "stream", "invalid_type"},
        {R"({"messages":[{"role":"user","content":"a"}],"n":100})", "n", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"logit_bias":{"x":1}})", "logit_bias", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"top_logprobs":2})", "top_logprobs", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_object"}})", "response_format",
         "unsupported_parameter"},
        {R"({"messages":[{"role":"user","content":"a"}],"functions":[]})", "functions", "unsupported_parameter"},
        {R"({"messages":[{"role":"user","content":"a"}],"chat_template":"x"})", "chat_template", "unsupported_parameter"},
        {R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})", "tools[0].function", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"a>b"}}]})",
         "tools[0].function.name", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"tool_choice":"required"})", "tool_choice", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"function","function":{"name":"f"}}})",
         "tool_choice", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"reasoning_effort":"extreme"})", "reasoning_effort", "invalid_value"},
        {R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"messages":[]}})",
         "chat_template_kwargs.messages", "invalid_value"},
    };
    for (const BadCase& bad : cases) {
        ChatCompletionsRequest request;
        const auto error = parse(bad.body, request);
        const std::string shown = std::string(bad.body).substr(0, 120);
        ASSERT_TRUE(error) << shown;
        EXPECT_EQ(error->status, 400) << shown;
        EXPECT_EQ(error->param, bad.param) << shown;
        EXPECT_EQ(error->code, bad.code) << shown << ": " << error->message;
        EXPECT_FALSE(error->message.empty());
    }
}

TEST(ChatRequest, HistoriesOfRealClientsAreRead) {
    ChatCompletionsRequest request;
    const auto error = parse(R"({
        "model": "m", "max_completion_tokens": 1024, "stream": true, "seed": 18446744073709551615, "user": null,
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "user", "content": "hi", "name": "me"},
            {"role": "assistant", "content": null, "reasoning_content": "why",
             "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}},
                            {"id": "c2", "function": {"name": "bash", "arguments": {"n": 12345678901234567890123}}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "out"}]},
            {"role": "function", "name": "bash", "content": ""}],
        "tools": [{"type": "function", "function": {"name": "bash"}}, {"type": "web_search"}, {"name": "flat", "parameters": {}}],
        "tool_choice": "auto", "parallel_tool_calls": false, "reasoning_effort": "high",
        "chat_template_kwargs": {"preserve_thinking": true}, "new_field": 1})",
                             request);
    ASSERT_FALSE(error) << error->message;
    const auto& messages = request.chat.messages;
    ASSERT_EQ(messages.size(), 5U);
    EXPECT_EQ(messages[0].role, "developer");
    EXPECT_EQ(messages[0].content, "ab");
    EXPECT_EQ(messages[2].content, std::nullopt);
    EXPECT_EQ(messages[2].reasoning_content, "why");
    EXPECT_EQ(messages[2].tool_calls[0].arguments, R"({"command": "ls"})");
    EXPECT_EQ(messages[2].tool_calls[1].arguments, R"({"n": 12345678901234567890123})") << "digits are kept";
    EXPECT_EQ(messages[3].tool_call_id, "c1");
    EXPECT_EQ(messages[4].role, "tool");
    ASSERT_EQ(request.chat.tools.size(), 2U) << "tools of other kinds are skipped";
    EXPECT_NE(request.chat.tools[1].find("function"), nullptr) << "flat tools are wrapped";
    EXPECT_EQ(request.chat.thinking, text::Thinking::on);
    EXPECT_EQ(request.chat.template_kwargs.size(), 1U);
    EXPECT_EQ(request.parallel_calls, ParallelCalls::first_only);
    EXPECT_EQ(request.fields.sampling.seed, UINT64_MAX);
    EXPECT_EQ(request.fields.tokens_max, 1024);
    EXPECT_TRUE(request.fields.is_stream);
    EXPECT_EQ(request.unknown_fields, (std::vector<std::string>{"tools[].type=web_search", "new_field"}));
}

TEST(ChatRequest, DefaultsHoldForWhatIsLeftOpen) {
    SamplingDefaults defaults;
    defaults.temperature = 0.6f;
    defaults.top_k = 20;
    ChatCompletionsRequest request;
    ASSERT_FALSE(parse_chat_completions(R"({"messages":[{"role":"user","content":"a"}],"temperature":null})", ServerLimits(),
                                        defaults, text::Thinking::unspecified, request));
    EXPECT_FLOAT_EQ(request.fields.sampling.temperature, 0.6f);
    EXPECT_EQ(request.fields.sampling.top_k, 20);
    EXPECT_EQ(request.fields.sampling.n_logprobs, -1);
    EXPECT_EQ(request.chat.thinking, text::Thinking::unspecified);
    EXPECT_FALSE(request.fields.has_seed);
    EXPECT_EQ(request.fields.tokens_max, -1);
}

}  // namespace
}  // namespace espalier::server
