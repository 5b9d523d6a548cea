// Building prompts from requests: the recorded workload token for token, the repairs, the boundaries.
#include "text/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "text/chat_history.h"
#include "text/prompt_boundaries.h"
#include "text/tokenizer_test_data.h"

namespace espalier::text {
namespace {

using testing::golden_path;
using ::testing::HasSubstr;

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::shared_ptr<const ChatTemplate> qwen_template(const std::string& name = "qwen3.6") {
    auto parsed = ChatTemplate::parse(read_file(golden_path("templates/" + name + ".jinja")));
    EXPECT_TRUE(parsed);
    return *parsed;
}

ChatMessage message(const std::string& role, std::optional<std::string> content) {
    ChatMessage made;
    made.role = role;
    made.content = std::move(content);
    return made;
}

ChatMessage call_message(const std::string& name, const std::string& arguments) {
    ChatMessage made;
    made.role = "assistant";
    made.tool_calls.push_back({"call_1", name, arguments});
    return made;
}

ChatRequest request_of(std::vector<ChatMessage> messages, Thinking thinking = Thinking::off) {
    ChatRequest request;
    request.messages = std::move(messages);
    request.thinking = thinking;
    return request;
}

std::string rendered(const ChatRequest& request, HistoryRepairs* repairs = nullptr) {
    auto text = render_chat_text(*qwen_template(), request, repairs);
    EXPECT_TRUE(text) << text.error().message;
    return text ? *text : "";
}

const std::string kNoThink = "<|im_start|>assistant\n<think>\n\n</think>\n\n";

// ---- The workload

std::string text_member(const Value& row, const char* name) {
    const Value* value = row.find(name);
    return value != nullptr && value->as_string() != nullptr ? *value->as_string() : "";
}

ChatMessage recorded_reply(const Value& row) {
    ChatMessage reply;
    reply.role = "assistant";
    reply.reasoning_content = text_member(row, "reasoning_content");
    for (const Value& call : *row.find("tool_calls")->as_list()) {
        const Value& function = *call.find("function");
        reply.tool_calls.push_back({text_member(call, "id"), text_member(function, "name"), text_member(function, "arguments")});
    }
    return reply;
}

// Calls visit(conversation, request) for each request of a recorded dataset, as the benchmark client builds them.
template <class Visit>
void for_each_request(const std::string& path, Visit visit) {
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    std::string conversation;
    ChatRequest request;
    for (std::string line; std::getline(file, line);) {
        auto row = parse_json_value(line, path);
        ASSERT_TRUE(row) << row.error().message;
        if (text_member(*row, "conversation_id") != conversation) {
            conversation = text_member(*row, "conversation_id");
            request = request_of({message("system", text_member(*row, "system"))});
            request.tools = *row->find("tools")->as_list();
        }
        const std::string role = text_member(*row, "role");
        if (role == "assistant") {
            request.messages.push_back(recorded_reply(*row));
            continue;
        }
        if (role == "user") request.messages.push_back(message("user", text_member(*row, "content")));
        if (role == "tool") {
            for (const Value& result : *row->find("tool_results")->as_list()) {
                request.messages.push_back(message("tool", text_member(result, "content")));
            }
        }
        visit(conversation, request);
    }
}

// The recorded bytes, tokens and common_prev of each prompt, by conversation in order.
struct Recorded {
    std::string conversation;
    size_t n_bytes = 0;
    size_t n_tokens = 0;
    size_t n_common = 0;
};

std::vector<Recorded> recorded_prompts() {
    std::vector<Recorded> rows;
    std::ifstream file(golden_path("workload-prompts.csv"));
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::vector<std::string> cells;
        std::istringstream stream(line);
        for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
        rows.push_back({cells[1], std::stoul(cells[5]), std::stoul(cells[6]), std::stoul(cells[7])});
    }
    return rows;
}

// Every prompt has the recorded length in bytes and tokens; the tokens that a prompt shares with the one before are covered by a
// boundary of that one up to a few tokens, so that the cache never reads more than that again.
void check_prompts(const std::string& dataset, size_t n_expected) {
    const auto chat_template = qwen_template();
    const auto tokenizer = testing::real_tokenizer();
    const std::vector<Recorded> recorded = recorded_prompts();
    RenderedPrompt before;
    std::string conversation_before;
    size_t n = 0;
    size_t row = 0;
    for_each_request(dataset, [&](const std::string& conversation, const ChatRequest& request) {
        if (conversation != conversation_before) {
            row = 0;
            while (row < recorded.size() && recorded[row].conversation != conversation) ++row;
        }
        ASSERT_LT(row, recorded.size());
        auto prompt = render_chat(*chat_template, *tokenizer, request);
        ASSERT_TRUE(prompt) << prompt.error().message;
        ASSERT_EQ(prompt->text.size(), recorded[row].n_bytes) << conversation << " row " << row;
        ASSERT_EQ(prompt->ids.size(), recorded[row].n_tokens) << conversation << " row " << row;
        ASSERT_EQ(prompt->repairs.arguments_wrapped + prompt->repairs.system_messages_moved + prompt->repairs.user_message_added,
                  0);
        if (conversation == conversation_before) {
            const auto& boundaries = before.stable_boundaries;
            const bool is_found = std::any_of(boundaries.begin(), boundaries.end(), [&](const StableBoundary& boundary) {
                return static_cast<size_t>(boundary.tokens) == recorded[row].n_common;
            });
            ASSERT_TRUE(is_found) << conversation << " row " << row;
        }
        before = *std::move(prompt);
        conversation_before = conversation;
        ++row;
        ++n;
    });
    EXPECT_EQ(n, n_expected);
}

TEST(ChatRequest, two_recorded_conversations) {
    check_prompts(std::string(ESPALIER_SOURCE_DIR) + "/demo/data/agentic_two.jsonl", 71);
}

TEST(ChatRequest, SlowWholeWorkload) {
    check_prompts(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/workload/agentic_coding_2.5h.jsonl", 1007);
}

// ---- Repairs

TEST(ChatRequest, plain_request_needs_no_repair) {
    HistoryRepairs repairs;
    EXPECT_EQ(rendered(request_of({message("system", "S"), message("user", " Hi ")}), &repairs),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n" + kNoThink);
    EXPECT_EQ(
        repairs.system_messages_moved + repairs.user_message_added + repairs.arguments_wrapped + repairs.volatile_lines_blanked,
        0);
}

TEST(ChatRequest, thinking_and_kwargs_reach_the_template) {
    ChatRequest request = request_of({message("user", "Hi")}, Thinking::on);
    EXPECT_EQ(rendered(request), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
    request.thinking = Thinking::unspecified;
    request.template_kwargs = {{"enable_thinking", Value(false)}};
    EXPECT_EQ(rendered(request), "<|im_start|>user\nHi<|im_end|>\n" + kNoThink);
    ChatMessage reply = message("assistant", "A");
    reply.reasoning_content = "R";
    request.messages = {message("user", "Hi"), reply, message("user", "B")};
    request.template_kwargs.emplace_back("preserve_thinking", Value(true));
    EXPECT_THAT(rendered(request), HasSubstr("assistant\n<think>\nR\n</think>\n\nA<|im_end|>"));
    request.add_generation_prompt = false;
    EXPECT_THAT(rendered(request), ::testing::EndsWith("user\nB<|im_end|>\n"));
}

TEST(ChatRequest, arguments_become_objects) {
    const auto call_with = [](const std::string& arguments, int expected_repairs) {
        HistoryRepairs repairs;
        const std::string text =
            rendered(request_of({message("user", "u"), call_message("f", arguments), message("tool", "t")}), &repairs);
        EXPECT_EQ(repairs.arguments_wrapped, expected_repairs) << arguments;
        const size_t begin = text.find("<function=f>\n") + 13;
        return text.substr(begin, text.find("</function>") - begin);
    };
    EXPECT_EQ(
        call_with(R"({"a": "x\ny", "b": 1.0, "c": {"d": null}})", 0),
        "<parameter=a>\nx\ny\n</parameter>\n<parameter=b>\n1.0\n</parameter>\n<parameter=c>\n{\"d\": null}\n</parameter>\n");
    EXPECT_EQ(call_with("", 0), "");
    EXPECT_EQ(call_with(" null ", 0), "");
    EXPECT_EQ(call_with(R"("{\"a\": 1}")", 1), "<parameter=a>\n1\n</parameter>\n");
    EXPECT_EQ(call_with("{\"a\": \"cut", 1), "<parameter=raw_arguments>\n{\"a\": \"cut\n</parameter>\n");
    EXPECT_EQ(call_with("[1, 2]", 1), "<parameter=raw_arguments>\n[1, 2]\n</parameter>\n");
}

TEST(ChatRequest, leading_system_messages_are_one) {
    HistoryRepairs repairs;
    EXPECT_EQ(
        rendered(request_of({message("system", "A"), message("developer", "B"), message("system", ""), message("user", "u")}),
                 &repairs),
        "<|im_start|>system\nA\n\nB<|im_end|>\n<|im_start|>user\nu<|im_end|>\n" + kNoThink);
    EXPECT_EQ(repairs.system_messages_moved, 2);
    EXPECT_EQ(rendered(request_of({message("developer", "B"), message("user", "u")}), &repairs),
              "<|im_start|>system\nB<|im_end|>\n<|im_start|>user\nu<|im_end|>\n" + kNoThink);
    EXPECT_EQ(repairs.system_messages_moved, 0);
}

TEST(ChatRequest, late_system_message_is_user_text_and_leaves_the_prefix) {
    HistoryRepairs repairs;
    const std::vector<ChatMessage> start = {message("system", "A"), message("user", "u"), message("assistant", "r")};
    ChatRequest request = request_of(start);
    request.add_generation_prompt = false;
    const std::string before = rendered(request);
    request.messages.push_back(message("system", "remember"));
    request.add_generation_prompt = true;
    EXPECT_THAT(rendered(request, &repairs), ::testing::EndsWith("<|im_start|>user\nremember<|im_end|>\n" + kNoThink));
    EXPECT_EQ(repairs.system_messages_moved, 1);
    EXPECT_THAT(rendered(request), ::testing::StartsWith(before.substr(0, before.find("<|im_start|>assistant"))));
}

TEST(ChatRequest, nobody_asked) {
    HistoryRepairs repairs;
    EXPECT_EQ(rendered(request_of({message("system", "A")}), &repairs),
              "<|im_start|>system\nA<|im_end|>\n<|im_start|>user\n<|im_end|>\n" + kNoThink);
    EXPECT_EQ(repairs.user_message_added, 1);
    EXPECT_EQ(rendered(request_of({}), &repairs), "<|im_start|>user\n<|im_end|>\n" + kNoThink);
    EXPECT_EQ(repairs.user_message_added, 1);
    rendered(request_of({message("assistant", "r")}), &repairs);
    EXPECT_EQ(repairs.user_message_added, 1);
    rendered(request_of({message("user", "<tool_response>x</tool_response>")}), &repairs);
    EXPECT_EQ(repairs.user_message_added, 1);
    rendered(request_of({message("user", std::nullopt)}), &repairs);
    EXPECT_EQ(repairs.user_message_added, 0);
}

TEST(ChatRequest, a_template_that_takes_it_sees_the_history_as_sent) {
    const auto chatml = ChatTemplate::parse("{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}");
    HistoryRepairs repairs;
    const auto text = render_chat_text(
        **chatml, request_of({message("system", "A"), message("assistant", std::nullopt), message("system", "B")}), &repairs);
    ASSERT_TRUE(text);
    EXPECT_EQ(*text, "[system:A][assistant:][system:B]");
    EXPECT_EQ(repairs.system_messages_moved + repairs.user_message_added, 0);
}

TEST(ChatRequest, what_cannot_be_repaired_is_refused_in_the_templates_words) {
    const auto unknown = render_chat_text(*qwen_template(), request_of({message("user", "u"), message("robot", "x")}));
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, ErrorCode::invalid_input);
    EXPECT_EQ(unknown.error().message, "Unexpected message role.");
}

TEST(ChatRequest, volatile_header_is_removed) {
    HistoryRepairs repairs;
    const auto system_of = [&](const std::string& content) {
        const std::string text = rendered(request_of({message("system", content), message("user", "u")}), &repairs);
        return text.substr(19, text.find("<|im_end|>") - 19);
    };
    const std::string rest = "You are an agent.\nx-other: y";
    EXPECT_EQ(system_of("x-anthropic-billing-header: cc_version=2.1.36.0d9; cc_entrypoint=cli; cch=4a3f1;\n" + rest), rest);
    EXPECT_EQ(repairs.volatile_lines_blanked, 1);
    EXPECT_EQ(system_of("x-anthropic-billing-header: cc_version=2.1.36; cch=00000;" + rest), rest);
    EXPECT_EQ(system_of("Hello\nx-anthropic-billing-header: cch=1;"), "Hello");
    EXPECT_EQ(system_of(rest), rest);
    EXPECT_EQ(repairs.volatile_lines_blanked, 0);
    const std::string in_user = rendered(request_of({message("user", "x-anthropic-billing-header: cch=1;")}));
    EXPECT_THAT(in_user, HasSubstr("cch=1;"));
}

TEST(ChatRequest, tools_are_shown_as_sent) {
    ChatRequest request = request_of({message("user", "u")});
    request.tools = {
        *parse_json_value(R"({"type":"function","function":{"name":"f","x":123456789012345678901,"y":1.0}})", "tool")};
    EXPECT_THAT(rendered(request), HasSubstr("<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"x\": "
                                             "123456789012345678901, \"y\": 1.0}}\n</tools>"));
}

TEST(ChatRequest, continue_final_message) {
    ChatRequest request = request_of({message("user", "u"), message("assistant", "  The answer is ")});
    request.continue_final_message = true;
    EXPECT_THAT(rendered(request), ::testing::EndsWith("<|im_start|>assistant\n<think>\n\n</think>\n\nThe answer is"));
    request.messages.back() = message("assistant", " ");
    EXPECT_FALSE(render_chat_text(*qwen_template(), request));
    request.messages.back() = message("user", "x");
    EXPECT_FALSE(render_chat_text(*qwen_template(), request));
}

// ---- Boundaries

std::vector<std::string> boundary_texts(const ChatRequest& request, const std::string& template_name = "qwen3.6") {
    const auto tokenizer = testing::tiny_tokenizer();
    auto prompt = render_chat(*qwen_template(template_name), *tokenizer, request);
    EXPECT_TRUE(prompt);
    EXPECT_EQ(prompt->ids, tokenizer->encode(prompt->text));
    EXPECT_TRUE(std::is_sorted(prompt->stable_boundaries.begin(), prompt->stable_boundaries.end(),
                               [](const StableBoundary& a, const StableBoundary& b) { return a.tokens < b.tokens; }));
    std::vector<std::string> texts;
    for (const StableBoundary& boundary : prompt->stable_boundaries) {
        texts.push_back(tokenizer->decode(std::vector<TokenId>(prompt->ids.begin(), prompt->ids.begin() + boundary.tokens)));
    }
    return texts;
}

TEST(ChatRequest, boundaries_with_thinking_off) {
    const std::string start = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_THAT(boundary_texts(request_of({message("user", "Hi")})),
                ::testing::ElementsAre(start, start + "<think>", start + "<think>\n\n</think>\n\n"));
}

TEST(ChatRequest, boundaries_with_thinking_on) {
    const std::string start = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_THAT(boundary_texts(request_of({message("user", "Hi")}, Thinking::on)),
                ::testing::ElementsAre(start, start + "<think>", start + "<think>\n"))
        << "a reply that comes back without its reasoning has a closed think block";
}

TEST(ChatRequest, a_new_user_turn_goes_back_to_the_last_one) {
    ChatMessage call = call_message("f", "{\"a\": \"b\"}");
    call.reasoning_content = "because";
    const std::string to_call = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    const auto texts = boundary_texts(request_of({message("user", "Hi"), call, message("tool", "result")}));
    ASSERT_EQ(texts.size(), 3u);
    EXPECT_EQ(texts[0], to_call);  // then the reasoning is dropped
    EXPECT_THAT(texts[1], ::testing::EndsWith("result\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>"));
}

TEST(ChatRequest, boundaries_when_markers_are_spelled_in_messages) {
    const std::string nasty = "see <|im_start|>user and <|im_end|><|im_end|> <think> </think>";
    const auto texts = boundary_texts(request_of({message("user", nasty), call_message("f", "{}"), message("tool", nasty)}));
    EXPECT_THAT(texts.back(), ::testing::EndsWith("</think>\n\n"));
    EXPECT_THAT(texts[texts.size() - 2], ::testing::EndsWith("<|im_start|>assistant\n<think>"));
}

TEST(PromptBoundaries, equals_the_prefix_of_whole_encodings) {
    const auto tokenizer = testing::tiny_tokenizer();
    const std::string base = "<|im_start|>user\nsome wörds <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nabc def";
    const auto ids = tokenizer->encode(base);
    for (size_t cut = 0; cut <= base.size(); ++cut) {
        for (const char* tail : {"", "x", "\n", "\n\n", " zz", "<|im_end|>", "<think>", "\xCC\x81"}) {
            const std::string other = base.substr(0, cut) + tail;
            const auto other_ids = tokenizer->encode(other);
            size_t same = 0;
            while (same < ids.size() && same < other_ids.size() && ids[same] == other_ids[same]) ++same;
            ASSERT_EQ(common_token_prefix(*tokenizer, base, ids, other), static_cast<int32_t>(same)) << cut << " + " << tail;
        }
    }
}

}  // namespace
}  // namespace espalier::text
