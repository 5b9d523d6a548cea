#include "bench/chat_client.h"

#include <fmt/format.h>

#include "bench/sse.h"

namespace espalier::bench {
namespace {

constexpr double kModelsTimeoutS = 60;
constexpr size_t kErrorBytesMax = 64 << 10;
constexpr size_t kReplyBytesMax = size_t{256} << 20;

// What a server said in an error body: the message of an OpenAI error object, else the first bytes.
std::string error_message(const std::string& body) {
    const auto json = parse_json(body, "error body");
    if (json && json->is_object() && json->contains("error")) {
        const Json& error = (*json)["error"];
        if (error.is_object() && error.contains("message") && error["message"].is_string())
            return error["message"].get<std::string>();
        if (error.is_string()) return error.get<std::string>();
    }
    return body.substr(0, 300);
}

void name_fault(ChatOutcome& result, const HttpOutcome& http, const std::string& body) {
    if (http.fault != HttpFault::none) {
        result.fault = http.fault == HttpFault::aborted ? "too_long" : to_string(http.fault);
        result.detail = http.detail;
    } else if (http.status != 200) {
        result.fault = fmt::format("http_{}", http.status);
        result.detail = error_message(body);
    } else if (!result.reply.server_error.empty()) {
        result.fault = "stream_error";
        result.detail = result.reply.server_error;
    } else if (http.content_type != "text/event-stream" && result.reply.n_deltas == 0 && !result.reply.has_ended()) {
        result.fault = "not_a_stream";
        result.detail = fmt::format("content type '{}': {}", http.content_type, body.substr(0, 200));
    }
}

}  // namespace

ChatClient::ChatClient(ServerAddress address, std::string api_key, double timeout_s)
    : http_(std::move(address)), api_key_(std::move(api_key)), timeout_s_(timeout_s) {}

ChatOutcome ChatClient::complete(std::string body, const std::string& session) {
    HttpRequest request{
        .path = "/v1/chat/completions", .body = std::move(body), .headers = {{"Content-Type", "application/json"}}};
    if (!session.empty()) request.headers.emplace_back("X-Session-ID", session);
    if (!api_key_.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key_);

    ChatOutcome result;
    int64_t now_ns = 0;
    SseParser parser([&](std::string_view data) { result.reply.on_event(data, now_ns); });
    std::string head;  // of the body, for error messages
    size_t n_bytes = 0;
    result.issued_ns = monotonic_ns();
    const HttpOutcome http = http_.exchange(request, timeout_s_, [&](int status, std::string_view bytes) {
        now_ns = monotonic_ns();
        n_bytes += bytes.size();
        if (status == 200) parser.push(bytes);
        if (head.size() < kErrorBytesMax) head += bytes.substr(0, kErrorBytesMax - head.size());
        return n_bytes <= kReplyBytesMax;
    });
    result.complete_ns = monotonic_ns();
    now_ns = result.complete_ns;
    parser.finish();
    result.reply.n_malformed += parser.events_dropped();
    result.was_reconnected = http.was_reconnected;
    name_fault(result, http, head);
    return result;
}

std::string ChatClient::first_model() {
    HttpRequest request{.method = "GET", .path = "/v1/models", .body = "", .headers = {}};
    if (!api_key_.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key_);
    const HttpReply reply = fetch(http_, request, kModelsTimeoutS);
    const auto list = reply.is_ok() ? parse_json(reply.body, "/v1/models") : Result<Json>(invalid_input("no list"));
    if (!list || !list->is_object() || !list->contains("data")) return "default";
    const Json& data = (*list)["data"];
    const bool has_name = data.is_array() && !data.empty() && data.front().is_object() && data.front().contains("id");
    return has_name && data.front()["id"].is_string() ? data.front()["id"].get<std::string>() : "default";
}

}  // namespace espalier::bench
