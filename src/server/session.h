// One connection: reads requests, hands them to the service, writes answers. Included by the two files that pay for Beast.
//
// All members belong to the connection's strand. Requests are answered one after the other; while one is being answered the
// socket is watched, so that a client that leaves is noticed in every phase, also when nothing is being written.
//
// Beast only parses requests. Answers are few and plain, and streams need control over every write, so their bytes are
// assembled here.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/http_types.h"
#include "server/service.h"

namespace espalier::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

class Session;

// Told when connections end; outlives them.
class SessionOwner {
public:
    virtual ~SessionOwner() = default;
    virtual void on_session_end(Session* session) = 0;
};

class Session : public Exchange, public std::enable_shared_from_this<Session> {
public:
    // All references must outlive the session.
    Session(asio::ip::tcp::socket socket, Service& service, asio::thread_pool& work, SessionOwner& owner);
    ~Session() override;

    void start();
    // Any thread: close when idle, else after the answer in progress.
    void close_gracefully();
    // Any thread: close at once.
    void close_now();
    // After all threads have ended: lets go of the answer in progress.
    void abandon();

    // Exchange
    void respond(HttpResponse response) override;
    void begin_stream(HttpResponse head) override;
    void write(std::string_view bytes) override;
    void end_stream(std::string log_fields) override;
    size_t unsent_bytes() const override { return queued_.size() + sending_.size() - sent_bytes_; }
    std::function<void()> waker() override;

private:
    using Error = beast::error_code;
    enum class Phase { waiting, reading, answering, sending_last, lingering, closed };
    enum class Body { with, without };

    void wait_for_request();
    void read_header();
    void on_header(Error error);
    void refuse_malformed(Error error);
    void read_body();
    void on_body(Error error);
    void send_continue();

    void dispatch();
    void run_outcome(Outcome outcome, uint64_t exchange);
    void watch();
    void on_readable(Error error, uint64_t exchange);
    void start_ticks();

    void append_head(const HttpResponse& response, std::optional<size_t> content_length);
    void send();
    void on_sent(Error error, size_t bytes);
    void on_all_sent();
    void finish_exchange(std::string_view log_fields, int status);
    void drop_activity();
    void client_left();
    void linger();
    void close();

    beast::tcp_stream stream_;
    Service& service_;
    asio::thread_pool& work_;
    SessionOwner& owner_;
    asio::steady_timer tick_timer_;

    beast::flat_buffer buffer_;
    std::optional<http::request_parser<http::string_body>> parser_;
    HttpRequest request_;
    Phase phase_ = Phase::waiting;
    uint64_t exchange_ = 0;  // number of the request; late callbacks of an earlier one are told by it
    std::unique_ptr<Activity> activity_;
    bool is_watching_ = false;
    bool is_head_request_ = false;
    bool is_chunked_ = false;
    bool is_streaming_ = false;
    bool keeps_alive_ = true;
    bool is_closing_ = false;  // no further request on this connection
    bool has_unread_body_ = false;
    int status_ = 0;

    std::string queued_;   // not yet given to the kernel
    std::string sending_;  // being sent
    size_t sent_bytes_ = 0;
    bool is_sending_ = false;
};

}  // namespace espalier::server
