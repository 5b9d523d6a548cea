// What a handler sees of HTTP: a request, a response, and for long answers an Activity that drives an Exchange. No Beast
// type crosses this header, so that only two files of the folder pay for it.
//
// Threads: a handler runs on a work thread and returns an Outcome. An Activity and its Exchange live on the connection's
// strand: no locks, never two calls at once. The one thing that may be called from elsewhere is the waker.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace espalier::server {

using Clock = std::chrono::steady_clock;

struct HttpRequest {
    std::string method;
    std::string path;    // without the query
    std::string query;   // after '?', may be empty
    std::string client;  // address:port, for the log
    std::string host;
    std::string origin;
    std::string authorization;
    std::string x_api_key;
    std::string session_id;  // X-Session-ID: which conversation this is, a hint for the cache
    std::string body;
    std::string id;  // of this request, in the log and in X-Request-Id
    Clock::time_point received;
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "application/json";
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
    std::string log_fields;  // appended to the request's log line, e.g. "error=model_not_found"
};

// One answer in progress. Exactly one of respond or begin_stream … end_stream is called.
class Exchange {
public:
    virtual ~Exchange() = default;
    virtual void respond(HttpResponse response) = 0;
    // Sends status and headers at once; the body of `head` is ignored.
    virtual void begin_stream(HttpResponse head) = 0;
    virtual void write(std::string_view bytes) = 0;
    // log_fields: for the request's log line.
    virtual void end_stream(std::string log_fields) = 0;
    // Bytes given to write that the kernel has not taken yet: the measure of a slow reader.
    virtual size_t unsent_bytes() const = 0;
    // A function that any thread may call, at any time: runs Activity::on_wake soon, if the activity is still there.
    virtual std::function<void()> waker() = 0;
};

// An answer that takes time. All calls come on the connection's strand; the Exchange outlives the Activity. After respond
// or end_stream nothing is called any more.
class Activity {
public:
    virtual ~Activity() = default;
    virtual void start(Exchange& exchange) = 0;
    virtual void on_wake() = 0;
    // Everything written so far was sent.
    virtual void on_drained() = 0;
    // Comes every ServerTimeouts::keep_alive_ms.
    virtual void on_tick() = 0;
    // The client left or the server stops: give up the work. The activity is destroyed afterwards. Returns log fields.
    virtual std::string on_closed() = 0;
};

using Outcome = std::variant<HttpResponse, std::unique_ptr<Activity>>;

}  // namespace espalier::server
