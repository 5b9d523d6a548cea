#include "bench/token_counter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/mapped_file.h"

namespace espalier::bench {
namespace {

constexpr size_t kTemplateBytesMax = 4 << 20;

const Json kEmptyUser{{"role", "user"}, {"content", ""}};
const Json kEmptyAssistant{{"role", "assistant"}, {"content", ""}};

class LocalCounter final : public TokenCounter {
public:
    LocalCounter(std::shared_ptr<const text::Tokenizer> tokenizer, std::shared_ptr<const text::ChatTemplate> chat_template)
        : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {}

    Status init() {
        TRY_ASSIGN(prefix_tokens_, render_tokens({template_message(kEmptyUser)}));
        TRY_ASSIGN(const int64_t framed, render_tokens({template_message(kEmptyUser), template_message(kEmptyAssistant)}));
        frame_tokens_ = framed - prefix_tokens_;
        return {};
    }

    Result<std::vector<text::TokenId>> prompt_ids(const Conversation& conversation, const History& history) override {
        text::ValueDict context{
            {"messages", text::Value(history.messages())}, {"add_generation_prompt", true}, {"enable_thinking", false}};
        if (!conversation.tools.is_null()) {
            TRY_ASSIGN(text::Value tools, text::parse_json_value(dump_json(conversation.tools), "tools"));
            context.emplace_back("tools", std::move(tools));
        }
        TRY_ASSIGN(const std::string prompt, template_->render(text::Value(std::move(context))));
        return tokenizer_->encode(prompt);
    }

    Result<int64_t> message_tokens(const Json& assistant) override {
        TRY_ASSIGN(const int64_t all, render_tokens({template_message(kEmptyUser), template_message(assistant)}));
        return std::max<int64_t>(0, all - prefix_tokens_ - frame_tokens_);
    }

    Result<int64_t> text_tokens(const std::string& text) override {
        return static_cast<int64_t>(tokenizer_->encode(text).size());
    }

    std::string source() const override { return "tokenizer and template files"; }

private:
    Result<int64_t> render_tokens(text::ValueList messages) {
        text::ValueDict context{{"messages", text::Value(std::move(messages))}, {"add_generation_prompt", false}};
        TRY_ASSIGN(const std::string prompt, template_->render(text::Value(std::move(context))));
        return static_cast<int64_t>(tokenizer_->encode(prompt).size());
    }

    std::shared_ptr<const text::Tokenizer> tokenizer_;
    std::shared_ptr<const text::ChatTemplate> template_;
    int64_t prefix_tokens_ = 0;
    int64_t frame_tokens_ = 0;
};

class ServerCounter final : public TokenCounter {
public:
    ServerCounter(HttpClient& client, std::string api_key, double timeout_s)
        : client_(&client), api_key_(std::move(api_key)), timeout_s_(timeout_s) {}

    Status init() {
        TRY_ASSIGN(frame_tokens_, framed_tokens(kEmptyAssistant));
        return {};
    }

    Result<std::vector<text::TokenId>> prompt_ids(const Conversation& conversation, const History& history) override {
        const std::string tools = conversation.tools.is_null() ? "" : ",\"tools\":" + dump_json(conversation.tools);
        return rendered_ids("{\"messages\":" + history.messages_json() + tools + "}");
    }

    // A server always adds a generation prompt and may read a last assistant message as one to continue, so the message is set
    // before an empty tool result, with and without its contents. (After a user message templates drop old reasoning.)
    Result<int64_t> message_tokens(const Json& assistant) override {
        TRY_ASSIGN(const int64_t all, framed_tokens(assistant));
        return std::max<int64_t>(0, all - frame_tokens_);
    }

    Result<int64_t> text_tokens(const std::string& text) override {
        TRY_ASSIGN(const std::vector<text::TokenId> ids, tokenize(text));
        return static_cast<int64_t>(ids.size());
    }

    std::string source() const override { return "the server's /apply-template and /tokenize"; }

private:
    Result<int64_t> framed_tokens(const Json& assistant) {
        const Json tool{{"role", "tool"}, {"content", ""}, {"tool_call_id", "call_0"}};
        const Json body{{"messages", Json::array({kEmptyUser, assistant, tool})}};
        TRY_ASSIGN(const std::vector<text::TokenId> ids, rendered_ids(dump_json(body)));
        return static_cast<int64_t>(ids.size());
    }

    Result<std::vector<text::TokenId>> rendered_ids(std::string body) {
        TRY_ASSIGN(const Json reply, post("/apply-template", std::move(body)));
        const auto prompt = reply.is_object() ? reply.find("prompt") : reply.end();
        if (!reply.is_object() || prompt == reply.end() || !prompt->is_string()) {
            return invalid_input("/apply-template: the reply has no string \"prompt\"");
        }
        return tokenize(prompt->get_ref<const std::string&>());
    }

    Result<std::vector<text::TokenId>> tokenize(const std::string& content) {
        const Json body{{"content", content}, {"add_special", false}, {"parse_special", true}};
        TRY_ASSIGN(const Json reply, post("/tokenize", dump_json(body)));
        const auto tokens = reply.is_object() ? reply.find("tokens") : reply.end();
        if (!reply.is_object() || tokens == reply.end() || !tokens->is_array()) {
            return invalid_input("/tokenize: the reply has no list \"tokens\"");
        }
        std::vector<text::TokenId> ids;
        ids.reserve(tokens->size());
        for (const Json& id : *tokens) {
            if (!id.is_number_integer()) return invalid_input("/tokenize: \"tokens\" holds something that is not an integer");
            ids.push_back(static_cast<text::TokenId>(id.get<int64_t>()));
        }
        return ids;
    }

    Result<Json> post(const std::string& path, std::string body) {
        HttpRequest request{.path = path, .body = std::move(body), .headers = {{"Content-Type", "application/json"}}};
        if (!api_key_.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key_);
        const HttpReply reply = fetch(*client_, request, timeout_s_);
        if (reply.outcome.fault != HttpFault::none) {
            return invalid_input(fmt::format("{}: {} ({})", path, to_string(reply.outcome.fault), reply.outcome.detail));
        }
        if (reply.outcome.status != 200) return invalid_input(fmt::format("{}: HTTP status {}", path, reply.outcome.status));
        return parse_json(reply.body, path);
    }

    HttpClient* client_;
    std::string api_key_;
    double timeout_s_;
    int64_t frame_tokens_ = 0;
};

}  // namespace

Result<std::unique_ptr<TokenCounter>> local_token_counter(const std::string& tokenizer_path, const std::string& template_path) {
    TRY_ASSIGN(auto tokenizer, text::Tokenizer::load(tokenizer_path));
    TRY_ASSIGN(const std::string source, read_file(template_path, kTemplateBytesMax));
    TRY_ASSIGN(auto chat_template, text::ChatTemplate::parse(source));
    auto counter = std::make_unique<LocalCounter>(std::move(tokenizer), std::move(chat_template));
    TRY(counter->init());
    return std::unique_ptr<TokenCounter>(std::move(counter));
}

std::unique_ptr<TokenCounter> server_token_counter(HttpClient& client, const std::string& api_key, double timeout_s) {
    auto counter = std::make_unique<ServerCounter>(client, api_key, timeout_s);
    if (!counter->init()) return nullptr;
    return counter;
}

int64_t common_prefix(const std::vector<text::TokenId>& a, const std::vector<text::TokenId>& b) {
    const auto [end_a, end_b] = std::ranges::mismatch(a, b);
    return end_a - a.begin();
}

Result<int64_t> reply_tokens(TokenCounter& counter, const Json& assistant) {
    if (assistant.contains("tool_calls") || assistant.contains("reasoning_content")) return counter.message_tokens(assistant);
    return counter.text_tokens(assistant.value("content", ""));
}

}  // namespace espalier::bench
