// A small HTTP/1.1 client for one server: keep-alive with reconnect, a deadline per exchange, the body handed over as it arrives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace espalier::bench {

// http://host[:port][/prefix]; "[::1]" for IPv6. A trailing "/v1" of the prefix is dropped, because paths here begin with it.
struct ServerAddress {
    std::string host;
    uint16_t port = 80;
    std::string prefix;  // "" or "/something" without a slash at the end
};

// Errors: invalid_input (no URL, bad port), unsupported (https).
Result<ServerAddress> parse_server_url(std::string_view url);

struct HttpRequest {
    std::string method = "POST";
    std::string path;  // appended to the prefix
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers;
};

// Why an exchange did not end with a complete response.
enum class HttpFault { none, connect, timeout, dropped, protocol, aborted };
std::string_view to_string(HttpFault fault);

struct HttpOutcome {
    HttpFault fault = HttpFault::none;
    std::string detail;            // the system's words when fault is not none
    int status = 0;                // 0: no header arrived
    std::string content_type;      // lower case, without parameters
    bool was_reconnected = false;  // a kept connection had been closed by the server and the request was sent again on a new one
};

// One connection, used by one thread.
class HttpClient {
public:
    explicit HttpClient(ServerAddress address);
    ~HttpClient();
    HttpClient(HttpClient&&) noexcept;
    HttpClient& operator=(HttpClient&&) noexcept;

    // Gets the body's bytes as they arrive (status known); false stops the exchange and closes the connection (fault aborted).
    using BodySink = std::function<bool(int status, std::string_view bytes)>;

    // Sends a request and reads the whole response. The deadline covers everything. A request is sent a second time only if a
    // kept connection turns out to be closed before any byte of a response arrived.
    HttpOutcome exchange(const HttpRequest& request, double timeout_s, const BodySink& sink);

    const ServerAddress& address() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct HttpReply {
    HttpOutcome outcome;
    std::string body;
    bool is_ok() const { return outcome.fault == HttpFault::none && outcome.status == 200; }
};

// An exchange whose body (at most bytes_max) is collected.
HttpReply fetch(HttpClient& client, const HttpRequest& request, double timeout_s, size_t bytes_max = size_t{64} << 20);

}  // namespace espalier::bench
