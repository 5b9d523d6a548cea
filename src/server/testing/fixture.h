// A server on loopback with the tiny tokenizer, a small template of our own and a scripted backend.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/server.h"
#include "server/testing/http_client.h"
#include "server/testing/scripted_backend.h"

namespace espalier::server::testing {

// The shape of Qwen's: turns between <|im_start|> and <|im_end|>, a closed or open think block at the end.
inline constexpr std::string_view kTemplate =
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\\n' "
    "}}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{%- if m.content %}{{- m.content }}{%- endif %}"
    "{%- for call in m.tool_calls %}{{- '<tool_call>' + (call.function.arguments | tojson) + '</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking %}{{- '<think>\\n' }}{%- else %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}";

inline constexpr int32_t kContextTokens = 4096;

class TestServer {
    // First, so that they outlive the server's threads.
    mutable std::mutex mutex_;
    std::string log_;

public:
    enum class Model { attached, loading };

    explicit TestServer(ServerOptions options = {}, Model model = Model::attached) {
        auto tokenizer_result = text::Tokenizer::load(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/tokenizer/tiny");
        CHECK(tokenizer_result.has_value(), "the tiny tokenizer loads");
        tokenizer = *tokenizer_result;
        backend = std::make_unique<ScriptedBackend>(*tokenizer, kContextTokens);
        options.port = 0;
        options.version = "test";
        options.log = Log::to_sink(LogLevel::debug, [this](LogLevel, std::string_view line) {
            std::lock_guard lock(mutex_);
            log_ += std::string(line) + "\n";
        });
        auto started = HttpServer::start(std::move(options));
        CHECK(started.has_value(), "the server starts on a free port");
        server = *std::move(started);
        if (model == Model::attached) attach();
    }

    void attach(ModelNames names = ModelNames::any) {
        auto chat_template = text::ChatTemplate::parse(kTemplate);
        CHECK(chat_template.has_value(), chat_template.error().message.c_str());
        auto context = std::make_shared<ServerContext>();
        context->backend = backend.get();
        context->tokenizer = tokenizer;
        context->chat_template = *chat_template;
        context->tool_format = *text::find_tool_format("qwen-xml");
        context->alias = "tiny";
        context->model_names = names;
        context->thinking = text::Thinking::off;
        context->stop_ids = {tokenizer->added_token_id("<|im_end|>")};
        context->template_hash = "0";
        server->attach(std::move(context));
    }

    // A reply that ends by itself.
    Script reply(std::string_view text) const {
        Script script;
        script.ids = tokenizer->encode(text);
        script.ids.push_back(tokenizer->added_token_id("<|im_end|>"));
        return script;
    }
    Reply post(std::string_view path, const Json& body, std::string_view headers = "") {
        return Connection(server->port()).request("POST", path, dump_json(body), headers);
    }
    Reply chat(Json body) {
        if (!body.contains("messages")) body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
        return post("/v1/chat/completions", body);
    }
    Reply get(std::string_view path, std::string_view headers = "") {
        return Connection(server->port()).request("GET", path, "", headers);
    }
    std::string log() const {
        std::lock_guard lock(mutex_);
        return log_;
    }
    // Waits up to 5 s for a condition that another thread brings about.
    template <class Condition>
    static bool eventually(Condition condition) {
        for (int i = 0; i < 1000; ++i) {
            if (condition()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return false;
    }

    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::unique_ptr<ScriptedBackend> backend;
    std::unique_ptr<HttpServer> server;
};

inline Json bash_tool() {
    return {{"type", "function"},
            {"function",
             {{"name", "bash"},
              {"parameters",
               {{"type", "object"}, {"properties", {{"command", {{"type", "string"}}}, {"n", {{"type", "integer"}}}}}}}}}};
}

// What a stream says, put together again.
struct Streamed {
    std::string content;
    std::string reasoning;
    Json calls = Json::array();
    std::string finish_reason;
    std::string role;

    explicit Streamed(const std::vector<Json>& events, int choice = 0) {
        for (const Json& event : events) {
            for (const Json& entry : event["choices"]) {
                if (entry["index"] == choice) add(entry);
            }
        }
    }

private:
    void add(const Json& entry) {
        const Json& delta = entry["delta"];
        if (delta.contains("role")) role = delta["role"];
        if (delta.contains("content")) content += delta["content"].get<std::string>();
        if (delta.contains("reasoning_content")) reasoning += delta["reasoning_content"].get<std::string>();
        if (entry["finish_reason"].is_string()) finish_reason = entry["finish_reason"];
        if (!delta.contains("tool_calls")) return;
        for (const Json& part : delta["tool_calls"]) {
            const size_t index = part["index"];
            if (index == calls.size()) {
                calls.push_back({{"id", part["id"]}, {"name", part["function"]["name"]}, {"arguments", ""}});
            }
            calls[index]["arguments"] =
                calls[index]["arguments"].get<std::string>() + part["function"]["arguments"].get<std::string>();
        }
    }
};

}  // namespace espalier::server::testing
