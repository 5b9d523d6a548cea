#include "bench/sse.h"

#include <gtest/gtest.h>

#include <vector>

#include "bench/reply.h"

namespace espalier::bench {
namespace {

std::vector<std::string> parse(std::string_view bytes, size_t step) {
    std::vector<std::string> events;
    SseParser parser([&](std::string_view data) { events.emplace_back(data); });
    for (size_t i = 0; i < bytes.size(); i += step) parser.push(bytes.substr(i, step));
    parser.finish();
    return events;
}

TEST(Sse, AnySplitGivesTheSameEvents) {
    const std::string body =
        "\xEF\xBB\xBF: comment\n\ndata: one\r\n\r\ndata:two\r\rdata:  three\n: ping\nid: 4\ndata\ndata: x\n\nevent: e\n\n"
        "database: no\n\ndata: last";
    const std::vector<std::string> expected{"one", "two", " three\n\nx", "last"};
    for (size_t step = 1; step <= body.size(); ++step) EXPECT_EQ(parse(body, step), expected) << step;
}

TEST(Sse, ReusableAfterFinish) {
    int n = 0;
    SseParser parser([&](std::string_view) { ++n; });
    parser.push("data: a");
    parser.finish();
    parser.push(
        "\xEF\xBB\xBF"
        "data: b\n\n");
    EXPECT_EQ(n, 2);
    EXPECT_EQ(parser.events_dropped(), 0);
}

TEST(Sse, OversizedEventsAreDropped) {
    int n = 0;
    SseParser parser([&](std::string_view) { ++n; });
    const std::string piece(size_t{1} << 20, 'x');
    parser.push("data: ");
    for (int i = 0; i < 70; ++i) parser.push(piece);
    parser.push("\n\ndata: ok\n\n");
    EXPECT_EQ(parser.events_dropped(), 1);
    EXPECT_EQ(n, 1);
}

StreamedReply read(const std::vector<std::string>& events) {
    StreamedReply reply;
    int64_t now = 0;
    for (const std::string& event : events) reply.on_event(event, ++now);
    return reply;
}

TEST(Reply, FirstChunkIsContentReasoningOrCall) {
    const std::string role = R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})";
    const std::string text = R"({"choices":[{"delta":{"content":"hi","reasoning_content":"lost"}}]})";
    const std::string thought = R"({"choices":[{"delta":{"reasoning":"hm"}}]})";
    const std::string call =
        R"({"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}]})";
    StreamedReply reply = read({role, text, thought});
    EXPECT_EQ(reply.first_delta_ns, 1);
    EXPECT_EQ(reply.first_chunk_ns, 2);
    EXPECT_EQ(reply.first_chunk, FirstChunk::content);
    EXPECT_EQ(reply.reasoning, "hm");  // within one delta content wins
    reply = read({role, thought, text});
    EXPECT_EQ(reply.first_chunk, FirstChunk::reasoning);
    EXPECT_EQ(reply.first_chunk_bytes, 2u);
    reply = read({role, call, text});
    EXPECT_EQ(reply.first_chunk, FirstChunk::tool_call);
    EXPECT_EQ(reply.first_chunk_ns, 2);
}

TEST(Reply, MergesCallsByIndex) {
    const StreamedReply reply = read(
        {R"({"choices":[{"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"1"}}]}}]})",
         R"({"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]}}]})",
         R"({"choices":[{"delta":{"tool_calls":[{"function":{"arguments":":1}"}},{"index":1,"id":null,"function":{"name":"","arguments":"2"}}]}}]})",
         R"({"choices":[{"delta":{},"finish_reason":"tool_calls"}]})", "[DONE]"});
    EXPECT_EQ(dump_json(reply.tool_calls()), R"([{"type":"function","function":{"arguments":"{\"x\":1}","name":"f"},"id":"a"},)"
                                             R"({"type":"function","function":{"arguments":"12","name":"g"},"id":"b"}])");
    EXPECT_EQ(reply.finish_reason, "tool_calls");
    EXPECT_TRUE(reply.is_done);
    EXPECT_EQ(reply.n_malformed, 0);
}

TEST(Reply, CountsFromUsageAndTimings) {
    const StreamedReply reply = read(
        {R"({"choices":[],"timings":{"cache_n":90,"prompt_n":10,"prompt_ms":5.5,"predicted_n":7,"predicted_ms":9,"draft_n":8,"draft_n_accepted":5,"rounds":3}})",
         R"({"choices":[],"usage":{"prompt_tokens":101,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":91}}})"});
    EXPECT_EQ(reply.counts.prompt_tokens, 101);
    EXPECT_EQ(reply.counts.cached_tokens, 91);
    EXPECT_EQ(reply.counts.output_tokens, 6);
    EXPECT_EQ(reply.counts.drafted, 8);
    EXPECT_EQ(reply.counts.accepted, 5);
    EXPECT_EQ(reply.counts.rounds, 3);
    EXPECT_EQ(reply.counts.prompt_ms, 5.5);
}

TEST(Reply, MalformedFramesAreCountedAndSkipped) {
    const StreamedReply reply = read(
        {"{\"choices\":", "[1]", R"({"choices":[{"delta":{"content":["a"]}}]})", R"({"choices":[{"delta":{"tool_calls":{}}}]})",
         R"({"choices":[{"delta":{},"finish_reason":5}]})", R"({"choices":5})", R"({"choices":[{"delta":{"tool_calls":[7]}}]})",
         R"({"choices":[{"delta":{"content":"ok"}}]})", R"({"usage":{"prompt_tokens":-4,"completion_tokens":"x"}})"});
    EXPECT_EQ(reply.n_malformed, 7);
    EXPECT_EQ(reply.content, "ok");
    EXPECT_FALSE(reply.counts.prompt_tokens.has_value());
    EXPECT_FALSE(reply.has_ended());
}

TEST(Reply, SeveralDataLinesWithoutBlankLines) {
    const StreamedReply reply =
        read({"{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n{\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n[DONE]",
              "{\"choices\":\n[{\"delta\":{\"content\":\"c\"}}]}"});
    EXPECT_EQ(reply.content, "abc");
    EXPECT_TRUE(reply.is_done);
    EXPECT_EQ(reply.n_malformed, 0);
}

TEST(Reply, ErrorObject) {
    EXPECT_EQ(read({R"({"error":{"message":"full","code":5}})"}).server_error, "full");
    EXPECT_EQ(read({R"({"error":"broken"})"}).server_error, "\"broken\"");
}

}  // namespace
}  // namespace espalier::bench
