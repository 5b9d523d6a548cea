// Chat completions end to end over a socket, with scripted replies: shapes, streaming = whole, tool calls, stops, errors.
#include <gtest/gtest.h>

#include "server/testing/fixture.h"

namespace espalier::server {
namespace {

using testing::bash_tool;
using testing::Reply;
using testing::Script;
using testing::Streamed;
using testing::TestServer;

const std::string kCall = "<tool_call>\n<function=bash>\n<parameter=command>\nls -la\n</parameter>\n</function>\n</tool_call>";

// The whole answer and the joined stream of the same request must be the same thing.
struct BothWays {
    Json message;
    std::string finish_reason;
    std::vector<Json> events;

    BothWays(TestServer& server, Json body) {
        const Reply whole = server.chat(body);
        EXPECT_EQ(whole.status, 200) << whole.body;
        message = whole.json()["choices"][0]["message"];
        finish_reason = whole.json()["choices"][0]["finish_reason"];
        body["stream"] = true;
        events = server.chat(body).events();
        const Streamed streamed(events);
        EXPECT_EQ(streamed.role, "assistant");
        EXPECT_EQ(streamed.finish_reason, finish_reason);
        EXPECT_EQ(streamed.content, message["content"].is_null() ? "" : message["content"].get<std::string>());
        EXPECT_EQ(streamed.reasoning, message.value("reasoning_content", ""));
        const Json calls = message.value("tool_calls", Json::array());
        EXPECT_EQ(streamed.calls.size(), calls.size());
        for (size_t i = 0; i < std::min(calls.size(), streamed.calls.size()); ++i) {
            EXPECT_EQ(streamed.calls[i]["name"], calls[i]["function"]["name"]);
            EXPECT_EQ(streamed.calls[i]["arguments"], calls[i]["function"]["arguments"]);
            EXPECT_TRUE(streamed.calls[i]["id"].get<std::string>().starts_with("call_"));
        }
    }
};

TEST(ChatCompletions, WholeAnswerHasTheAgreedShape) {
    TestServer server;
    Script script = server.reply("Hello there");
    script.cached_tokens = 3;
    server.backend->set_script(script);
    const Json answer = server.chat({{"model", "whatever"}}).json();
    EXPECT_EQ(answer["object"], "chat.completion");
    EXPECT_EQ(answer["model"], "tiny");
    EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
    EXPECT_EQ(answer["choices"][0]["index"], 0);
    EXPECT_EQ(answer["choices"][0]["message"], (Json{{"role", "assistant"}, {"content", "Hello there"}}));
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    const int prompt = answer["usage"]["prompt_tokens"];
    const int output = answer["usage"]["completion_tokens"];
    EXPECT_EQ(output, static_cast<int>(script.ids.size()) - 1);
    EXPECT_EQ(answer["usage"]["total_tokens"], prompt + output);
    EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
    EXPECT_EQ(answer["timings"]["cache_n"], 3);
    EXPECT_EQ(answer["timings"]["prompt_n"], prompt - 3);
    for (const char* name : {"prompt_ms", "predicted_n", "predicted_ms", "draft_n", "draft_n_accepted", "rounds"}) {
        EXPECT_TRUE(answer["timings"].contains(name)) << name;
    }
    EXPECT_TRUE(TestServer::eventually([&] { return server.log().find(" finish=stop") != std::string::npos; }));
    EXPECT_EQ(server.log().find("Hello"), std::string::npos) << "no reply text in the log";
}

TEST(ChatCompletions, EveryChunkHasWhatClientsReadFromIt) {
    TestServer server;
    server.backend->set_script(server.reply("Looking.\n\n" + kCall));
    const auto events = server.chat({{"stream", true}, {"tools", {bash_tool()}}}).events();
    ASSERT_GE(events.size(), 4U);
    EXPECT_EQ(events[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
    for (size_t i = 0; i < events.size(); ++i) {
        const Json& event = events[i];
        EXPECT_EQ(event["object"], "chat.completion.chunk");
        EXPECT_EQ(event["id"], events[0]["id"]);
        ASSERT_EQ(event["choices"].size(), 1U);
        const Json& delta = event["choices"][0]["delta"];
        EXPECT_FALSE(delta.contains("content") && delta.contains("reasoning_content"));
        const bool is_last = i + 1 == events.size();
        EXPECT_EQ(event["choices"][0]["finish_reason"].is_null(), !is_last);
        EXPECT_EQ(event.contains("usage"), is_last);
        EXPECT_EQ(event.contains("timings"), is_last);
        if (i > 0 && !is_last) {
            EXPECT_FALSE(delta.empty());
        }
    }
    EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
    const auto first_call = std::find_if(events.begin(), events.end(),
                                         [](const Json& event) { return event["choices"][0]["delta"].contains("tool_calls"); });
    const Json& head = (*first_call)["choices"][0]["delta"]["tool_calls"][0];
    EXPECT_EQ(head["index"], 0);
    EXPECT_EQ(head["type"], "function");
    EXPECT_EQ(head["function"]["name"], "bash");
}

TEST(ChatCompletions, UsageChunkOfItsOwnWhenAskedFor) {
    TestServer server;
    server.backend->set_script(server.reply("Hello"));
    const auto events = server.chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}).events();
    EXPECT_EQ(events.back()["choices"], Json::array());
    EXPECT_TRUE(events.back().contains("usage"));
    EXPECT_TRUE(events.back().contains("timings"));
    EXPECT_FALSE(events[events.size() - 2].contains("usage"));
}

TEST(ChatCompletions, ToolCallsWholeAndStreamed) {
    TestServer server;
    server.backend->set_script(server.reply("I look.\n\n" + kCall + "\n" + kCall));
    const BothWays both(server, {{"tools", {bash_tool()}}});
    EXPECT_EQ(both.finish_reason, "tool_calls");
    EXPECT_EQ(both.message["content"], "I look.");
    ASSERT_EQ(both.message["tool_calls"].size(), 2U);
    EXPECT_EQ(both.message["tool_calls"][1]["function"]["arguments"], R"({"command": "ls -la"})");
    EXPECT_NE(both.message["tool_calls"][0]["id"], both.message["tool_calls"][1]["id"]);
}

TEST(ChatCompletions, MarkersSpelledByOrdinaryTokensStayText) {
    TestServer server;
    // On one line: a bare <function=…> at the start of a line would count as a call whatever precedes it.
    const std::string spelled = "say <tool_call> <function=bash> </function> </tool_call>";
    Script script;
    script.ids = server.tokenizer->encode(spelled, text::SpecialTokens::none);
    script.ids.push_back(server.tokenizer->added_token_id("<|im_end|>"));
    server.backend->set_script(script);
    const BothWays both(server, {{"tools", {bash_tool()}}});
    EXPECT_FALSE(both.message.contains("tool_calls"));
    EXPECT_EQ(both.message["content"], spelled);
}

TEST(ChatCompletions, OneCallOnlyWhenParallelCallsAreOff) {
    TestServer server;
    Script script = server.reply(kCall + "\n" + kCall);
    script.step_ms = 2;
    server.backend->set_script(script);
    const BothWays both(server, {{"tools", {bash_tool()}}, {"parallel_tool_calls", false}});
    EXPECT_EQ(both.message["tool_calls"].size(), 1U);
    EXPECT_EQ(both.finish_reason, "tool_calls");
    EXPECT_EQ(server.backend->n_cancelled(), 2);
}

TEST(ChatCompletions, CutByLengthInsideACallIsHonest) {
    TestServer server;
    Script script = server.reply(kCall);
    server.backend->set_script(script);
    // Cut after "ls": the value has begun.
    const size_t cut = server.tokenizer->encode("<tool_call>\n<function=bash>\n<parameter=command>\nls").size();
    const BothWays both(server, {{"tools", {bash_tool()}}, {"max_tokens", cut}});
    EXPECT_EQ(both.finish_reason, "length");
    ASSERT_EQ(both.message["tool_calls"].size(), 1U);
    const std::string arguments = both.message["tool_calls"][0]["function"]["arguments"];
    EXPECT_TRUE(arguments.starts_with(R"({"command": "l)")) << arguments;
    EXPECT_FALSE(parse_json(arguments, "arguments")) << "an unfinished call must not look finished";
}

TEST(ChatCompletions, ReasoningComesApartFromContent) {
    TestServer server;
    server.backend->set_script(server.reply("I think.\n</think>\n\nI say."));
    const BothWays both(server, {{"chat_template_kwargs", {{"enable_thinking", true}}}});
    EXPECT_EQ(both.message["reasoning_content"], "I think.");
    EXPECT_EQ(both.message["content"], "I say.");
    server.backend->set_script(server.reply("plain"));
    for (const char* effort : {"none", "minimal"}) {
        EXPECT_FALSE(server.chat({{"reasoning_effort", effort}}).json()["choices"][0]["message"].contains("reasoning_content"));
    }
    EXPECT_EQ(server.chat({{"reasoning_effort", "low"}}).json()["choices"][0]["message"]["reasoning_content"], "plain");
}

TEST(ChatCompletions, CharactersSplitOverTokensArriveWhole) {
    TestServer server;
    const std::string text = "na\xc3\xafve \xf0\x9f\x98\x80\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 \xe6\xbc\xa2\xe5\xad\x97";
    server.backend->set_script(server.reply(text));
    const BothWays both(server, Json::object());
    EXPECT_EQ(both.message["content"], text);
    for (const Json& event : both.events) EXPECT_EQ(dump_json(event).find("\xef\xbf\xbd"), std::string::npos);
}

TEST(ChatCompletions, StopStringsNeverShow) {
    TestServer server;
    server.backend->set_script(server.reply("The answer is 42. Observation: more text"));
    for (const std::string stop : {"Observation:", "answer is 42", "T"}) {
        const BothWays both(server, {{"stop", stop}});
        const std::string whole = "The answer is 42. Observation: more text";
        EXPECT_EQ(both.message["content"], whole.substr(0, whole.find(stop)));
        EXPECT_EQ(both.finish_reason, "stop");
    }
    const BothWays near_miss(server, {{"stop", {"Observation!", "more texts"}}});
    EXPECT_EQ(near_miss.message["content"], "The answer is 42. Observation: more text");
}

TEST(ChatCompletions, JobsCarryWhatTheRequestSays) {
    TestServer server;
    server.backend->set_script(server.reply("x"));
    const Json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                       {"temperature", 0.5},
                       {"top_k", 7},
                       {"top_p", 0.9},
                       {"min_p", 0.1},
                       {"repetition_penalty", 1.1},
                       {"presence_penalty", 0.2},
                       {"frequency_penalty", 0.3},
                       {"seed", 42},
                       {"max_tokens", 9},
                       {"max_completion_tokens", 5},
                       {"stop", {"a", "b"}},
                       {"logit_bias", {{"17", -100}}},
                       {"logprobs", true},
                       {"top_logprobs", 3},
                       {"cache_salt", "salt"}};
    ASSERT_EQ(server.post("/v1/chat/completions", body, "X-Session-ID: conversation-1\r\n").status, 200);
    ASSERT_EQ(server.chat({{"ignore_eos", true}, {"max_tokens", 32000}}).status, 200);
    const auto jobs = server.backend->jobs();
    const engine::Job& job = jobs[0];
    EXPECT_FLOAT_EQ(job.sampling.temperature, 0.5f);
    EXPECT_EQ(job.sampling.top_k, 7);
    EXPECT_FLOAT_EQ(job.sampling.top_p, 0.9f);
    EXPECT_FLOAT_EQ(job.sampling.min_p, 0.1f);
    EXPECT_FLOAT_EQ(job.sampling.repetition_penalty, 1.1f);
    EXPECT_FLOAT_EQ(job.sampling.presence_penalty, 0.2f);
    EXPECT_FLOAT_EQ(job.sampling.frequency_penalty, 0.3f);
    EXPECT_EQ(job.sampling.seed, 42U);
    EXPECT_EQ(job.sampling.n_logprobs, 3);
    EXPECT_EQ(job.sampling.logit_bias, (std::vector<std::pair<engine::TokenId, float>>{{17, -100.0f}}));
    EXPECT_EQ(job.max_tokens, 5);
    EXPECT_EQ(job.stop_strings, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(job.stop_ids.size(), 1U);
    EXPECT_EQ(job.cache_salt, "salt");
    EXPECT_EQ(job.session_hint, "conversation-1");
    EXPECT_EQ(server.tokenizer->decode(job.prompt),
              "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    EXPECT_TRUE(jobs[1].stop_ids.empty());
    EXPECT_EQ(jobs[1].max_tokens, testing::kContextTokens - static_cast<int32_t>(jobs[1].prompt.size()))
        << "clamped to the context";
}

TEST(ChatCompletions, ControlTokensAreNotShown) {
    TestServer server;
    server.backend->set_script(server.reply("before<|im_end|>after"));
    const BothWays both(server, {{"ignore_eos", true}, {"max_tokens", 100}});
    EXPECT_EQ(both.message["content"], "beforeafter");
    EXPECT_EQ(both.finish_reason, "length");
}

TEST(ChatCompletions, LogprobsCoverEveryToken) {
    TestServer server;
    const Script script = server.reply("Hello there, you");
    server.backend->set_script(script);
    const Json whole = server.chat({{"logprobs", true}, {"top_logprobs", 1}}).json();
    const Json& content = whole["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(content.size(), script.ids.size() - 1);
    EXPECT_EQ(content[0]["logprob"], -0.5);
    EXPECT_EQ(content[0]["top_logprobs"].size(), 1U);
    std::string text;
    for (const Json& token : content) text += token["token"].get<std::string>();
    EXPECT_EQ(text, "Hello there, you");
    size_t n_streamed = 0;
    for (const Json& event : server.chat({{"logprobs", true}, {"stream", true}}).events()) {
        if (event["choices"][0].contains("logprobs")) n_streamed += event["choices"][0]["logprobs"]["content"].size();
    }
    EXPECT_EQ(n_streamed, content.size());
}

TEST(ChatCompletions, SeveralChoicesInOneAnswer) {
    TestServer server;
    server.backend->set_chooser(
        [&](const engine::Job& job) { return server.reply("seed " + std::to_string(job.sampling.seed)); });
    const Json answer = server.chat({{"n", 3}, {"seed", 7}}).json();
    ASSERT_EQ(answer["choices"].size(), 3U);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(answer["choices"][i]["message"]["content"], "seed " + std::to_string(7 + i));
    const auto events = server.chat({{"n", 3}, {"seed", 7}, {"stream", true}}).events();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Streamed(events, i).content, "seed " + std::to_string(7 + i));
    EXPECT_EQ(std::count_if(events.begin(), events.end(), [](const Json& event) { return event.contains("usage"); }), 1);
    EXPECT_EQ(events.back()["usage"]["completion_tokens"], answer["usage"]["completion_tokens"]);
}

TEST(ChatCompletions, ForcedCallBeginsTheReply) {
    TestServer server;
    server.backend->set_script(server.reply("<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"));
    for (const Json& choice : {Json("required"), Json{{"type", "function"}, {"function", {{"name", "bash"}}}}}) {
        for (const bool thinking : {false, true}) {
            const BothWays both(server, {{"tools", {bash_tool()}}, {"tool_choice", choice}, {"enable_thinking", thinking}});
            ASSERT_TRUE(both.message.contains("tool_calls")) << both.message;
            EXPECT_EQ(both.message["tool_calls"][0]["function"]["name"], "bash");
            EXPECT_EQ(both.message["tool_calls"][0]["function"]["arguments"], R"({"command": "ls"})");
            EXPECT_TRUE(
                server.tokenizer->decode(server.backend->jobs().back().prompt).ends_with("<tool_call>\n<function=bash>\n"));
        }
    }
}

TEST(ChatCompletions, ToolChoiceNoneNeitherOffersNorParses) {
    TestServer server;
    server.backend->set_script(server.reply(kCall));
    const BothWays both(server, {{"tools", {bash_tool()}}, {"tool_choice", "none"}});
    EXPECT_FALSE(both.message.contains("tool_calls"));
    EXPECT_EQ(both.message["content"], kCall);
    EXPECT_EQ(server.tokenizer->decode(server.backend->jobs()[0].prompt).find("bash"), std::string::npos);
}

TEST(ChatCompletions, ErrorsBeforeTheReply) {
    TestServer server;
    Reply reply = server.chat({{"messages", {{{"role", "user"}, {"content", std::string(40'000, 'x') + " y z"}}}}});
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
    const std::string message = reply.json()["error"]["message"];
    for (const char* words :
         {"exceeds the available context size", "prompt is too long", "maximum context length is 4096 tokens"}) {
        EXPECT_NE(message.find(words), std::string::npos) << words;
    }
    EXPECT_EQ(reply.json()["error"]["n_ctx"], testing::kContextTokens);
    server.backend->set_queue_full(true);
    reply = server.chat({{"stream", true}});
    EXPECT_EQ(reply.status, 503);
    EXPECT_TRUE(reply.has_header("Retry-After: 1"));
    server.backend->set_queue_full(false);
    EXPECT_EQ(server.post("/v1/chat/completions", Json::array()).json()["error"]["message"],
              "request body: expected a JSON object, found an array");
}

TEST(ChatCompletions, FailureDuringTheReplyIsToldWithoutInternals) {
    TestServer server;
    Script script = server.reply("half");
    script.failure = "secret detail";
    server.backend->set_script(script);
    Reply reply = server.chat({});
    EXPECT_EQ(reply.status, 500);
    EXPECT_EQ(reply.body.find("secret"), std::string::npos);
    EXPECT_NE(server.log().find("secret detail"), std::string::npos);
    reply = server.chat({{"stream", true}});
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.events().back()["error"]["code"], "internal_error");
    EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n"));
}

TEST(ChatCompletions, StrictModelNames) {
    TestServer server({}, TestServer::Model::loading);
    server.attach(ModelNames::strict);
    server.backend->set_script(server.reply("x"));
    EXPECT_EQ(server.chat({{"model", "tiny"}}).status, 200);
    const Reply reply = server.chat({{"model", "gpt-4o"}});
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(reply.json()["error"]["code"], "model_not_found");
    EXPECT_EQ(reply.json()["error"]["param"], "model");
}

TEST(ChatCompletions, UnknownFieldsAreWarnedOfOnce) {
    TestServer server;
    server.backend->set_script(server.reply("x"));
    for (int i = 0; i < 2; ++i) {
        const Json message = {{"role", "user"}, {"content", "hi"}, {"odd", 1}};
        ASSERT_EQ(server.chat({{"strange_field", 1}, {"messages", {message, message}}}).status, 200);
    }
    const std::string log = server.log();
    for (const char* name : {"\"strange_field\"", "\"messages[].odd\""}) {
        const size_t first = log.find(name);
        ASSERT_NE(first, std::string::npos) << name;
        EXPECT_EQ(log.find(name, first + 1), std::string::npos);
    }
}

TEST(Completions, TextAndIdsInTextOut) {
    TestServer server;
    server.backend->set_script(server.reply("raw <tool_call> text"));
    const Json whole = server.post("/v1/completions", {{"prompt", "Once upon"}, {"max_tokens", 50}}).json();
    EXPECT_EQ(whole["object"], "text_completion");
    EXPECT_EQ(whole["choices"][0]["text"], "raw <tool_call> text");
    EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
    std::string streamed;
    const Json ids = {1, 2, 3};
    for (const Json& event : server.post("/v1/completions", {{"prompt", ids}, {"stream", true}}).events()) {
        streamed += event["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(streamed, "raw <tool_call> text");
    EXPECT_EQ(server.backend->jobs()[1].prompt, (std::vector<engine::TokenId>{1, 2, 3}));
    EXPECT_EQ(server.post("/v1/completions", {{"prompt", ""}}).status, 400);
    EXPECT_EQ(server.post("/v1/completions", {{"prompt", {-1}}}).status, 400);
    EXPECT_EQ(server.post("/v1/completions", {{"prompt", {"a", "b"}}}).json()["error"]["code"], "unsupported_parameter");
}

TEST(TextRoutes, TokenizeDetokenizeAndApplyTemplate) {
    TestServer server;
    const Json ids = server.post("/tokenize", {{"content", "Hello <think> there"}}).json()["tokens"];
    EXPECT_EQ(ids.get<std::vector<int>>(), server.tokenizer->encode("Hello <think> there"));
    EXPECT_EQ(server.post("/detokenize", {{"tokens", ids}}).json()["content"], "Hello <think> there");
    const Json pieces = server.post("/tokenize", {{"content", "a\xf0\x90\x8d\x88"}, {"with_pieces", true}}).json()["tokens"];
    EXPECT_EQ(pieces[0]["piece"], "a");
    EXPECT_TRUE(pieces[1]["piece"].is_array()) << "part of a character is shown as bytes";
    EXPECT_EQ(server.post("/tokenize", {{"content", 5}}).json()["error"]["param"], "content");
    EXPECT_EQ(server.post("/detokenize", {{"tokens", {99999999}}}).status, 400);
    EXPECT_EQ(server.post("/apply-template", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}}).json()["prompt"],
              "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

}  // namespace
}  // namespace espalier::server
