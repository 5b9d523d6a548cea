// HTTP by libcurl: several exchanges at a time in one thread, redirects followed by us.
//
// Why by us: the hub's own answer carries what names the file (X-Repo-Commit, X-Linked-Etag) before it redirects to a store that
// knows nothing of it, and the token must reach the hub and nobody else. Proxies are libcurl's: http_proxy, https_proxy,
// all_proxy, no_proxy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier::hub {

// Names in lower case; of repeated headers the last.
using Headers = std::map<std::string, std::string, std::less<>>;
std::string_view header(const Headers& headers, std::string_view name);

// What is known when the headers of the answer to keep have come.
struct ResponseHead {
    int status = 0;
    Headers headers;
    Headers hub;  // what the hub said itself, in this answer or in redirects before it; later ones over earlier ones
    bool is_hub = true;
    std::string host;  // that answered
};

struct HttpRequest {
    enum class Method { get, head };
    Method method = Method::get;
    std::string url;
    int64_t first_byte = -1;  // a range, both ends included; -1 = the whole
    int64_t last_byte = -1;
    // Called for an answer below 300, before its body; false ends the exchange.
    std::function<bool(const ResponseHead&)> on_head;
    // The body of an answer below 300, as it arrives; false ends the exchange.
    std::function<bool(std::string_view)> on_body;
};

struct HttpResult {
    ResponseHead head;        // status 0: no answer
    bool is_stopped = false;  // a callback said so
    int curl_code = 0;        // not 0: the exchange did not end well
    std::string detail;       // libcurl's words
    bool is_complete() const { return curl_code == 0 && !is_stopped && head.status >= 200 && head.status < 300; }
};

struct HttpOptions {
    std::string endpoint;  // "https://huggingface.co", no slash at the end
    std::string token;     // empty = none; sent to the endpoint's scheme, host and port only
    std::string user_agent;
    std::string ca_file;  // empty = the system's
};

class HttpSession {
public:
    // Errors: invalid_input (bad endpoint), exhausted.
    static Result<std::unique_ptr<HttpSession>> create(HttpOptions options);
    ~HttpSession();
    HttpSession(const HttpSession&) = delete;
    HttpSession& operator=(const HttpSession&) = delete;

    // Starts an exchange; `done` is called from step() when it has ended, and may add others.
    void add(HttpRequest request, std::function<void(HttpResult)> done);
    // Moves bytes for up to timeout_ms or until something happens.
    void step(int timeout_ms);
    int n_running() const;
    // Ends everything; nobody is called.
    void cancel_all();

    const HttpOptions& options() const;

private:
    struct Impl;
    explicit HttpSession(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// One exchange to its end, the body (at most bytes_max) collected. A body that is longer ends it: is_stopped.
HttpResult fetch(HttpSession& session, HttpRequest request, std::string& body, size_t bytes_max);

}  // namespace espalier::hub
