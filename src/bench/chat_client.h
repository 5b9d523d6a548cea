// One streamed chat completion at a time, with every way it can fail named.
#pragma once

#include <string>
#include <string_view>

#include "bench/http_client.h"
#include "bench/reply.h"

namespace espalier::bench {

struct ChatOutcome {
    // "" = a complete reply; else connect, timeout, dropped, protocol, too_long, http_<status>, stream_error, not_a_stream.
    std::string fault;
    std::string detail;
    bool was_reconnected = false;
    StreamedReply reply;  // what arrived, also of a failed request
    int64_t issued_ns = 0;
    int64_t complete_ns = 0;
};

class ChatClient {
public:
    // api_key: sent as a bearer token; "" = none.
    ChatClient(ServerAddress address, std::string api_key, double timeout_s);

    // POST /v1/chat/completions. session: X-Session-ID; "" = not sent.
    ChatOutcome complete(std::string body, const std::string& session);

    // The first name that /v1/models lists, "default" when it lists none.
    std::string first_model();

    HttpClient& http() { return http_; }
    const HttpClient& http() const { return http_; }

private:
    HttpClient http_;
    std::string api_key_;
    double timeout_s_;
};

}  // namespace espalier::bench
