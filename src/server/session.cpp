#include "server/session.h"

#include <fmt/format.h>

#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include "server/ids.h"
#include "server/security.h"

namespace espalier::server {
namespace {

using std::chrono::milliseconds;

std::string text_of(beast::string_view view) {
    return {view.data(), view.size()};
}

const char* reason_phrase(int status) {
    const beast::string_view phrase = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
    return phrase.data();
}

std::string client_name(const asio::ip::tcp::socket& socket) {
    beast::error_code error;
    const asio::ip::tcp::endpoint peer = socket.remote_endpoint(error);
    return error ? "unknown" : fmt::format("{}:{}", peer.address().to_string(), peer.port());
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, Service& service, asio::thread_pool& work, SessionOwner& owner)
    : stream_(std::move(socket)), service_(service), work_(work), owner_(owner), tick_timer_(stream_.get_executor()) {}

Session::~Session() {
    owner_.on_session_end(this);
}

void Session::start() {
    asio::dispatch(stream_.get_executor(), [self = shared_from_this()] {
        beast::error_code ignored;
        self->stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
        self->request_.client = client_name(self->stream_.socket());
        self->wait_for_request();
    });
}

void Session::close_gracefully() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
        self->is_closing_ = true;
        self->keeps_alive_ = false;
        if (self->phase_ == Phase::waiting) self->close();
    });
}

void Session::close_now() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
        if (self->phase_ == Phase::answering) return self->client_left();
        self->close();
    });
}

void Session::abandon() {
    activity_.reset();
    close();
}

// --- reading -----------------------------------------------------------------------------------------------------------

void Session::wait_for_request() {
    if (is_closing_) return close();
    phase_ = Phase::waiting;
    if (buffer_.size() > 0) return read_header();  // the next request came along with the last one
    stream_.expires_after(milliseconds(service_.options().timeouts.idle_ms));
    stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](Error error, size_t bytes) {
        if (error) return self->close();
        self->buffer_.commit(bytes);
        self->read_header();
    });
}

void Session::read_header() {
    phase_ = Phase::reading;
    std::string client = std::move(request_.client);
    request_ = HttpRequest();
    request_.client = std::move(client);
    request_.received = Clock::now();
    request_.id = new_id("req-");
    ++exchange_;
    parser_.emplace();
    parser_->header_limit(service_.options().limits.header_bytes);
    parser_->body_limit(service_.options().limits.body_bytes);
    stream_.expires_after(milliseconds(service_.options().timeouts.header_ms));
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](Error error, size_t) { self->on_header(error); });
}

void Session::on_header(Error error) {
    if (error == http::error::end_of_stream || error == beast::error::timeout || error == asio::error::operation_aborted)
        return close();
    const auto& message = parser_->get();
    request_.method = text_of(message.method_string());
    const std::string target = text_of(message.target());
    const size_t question = target.find('?');
    request_.path = target.substr(0, question);
    if (question != std::string::npos) request_.query = target.substr(question + 1);
    if (error) return refuse_malformed(error);

    request_.host = text_of(message[http::field::host]);
    request_.origin = text_of(message[http::field::origin]);
    request_.authorization = text_of(message[http::field::authorization]);
    request_.x_api_key = text_of(message["x-api-key"]);
    request_.session_id = text_of(message["x-session-id"]);
    is_head_request_ = request_.method == "HEAD";
    is_chunked_ = message.version() >= 11;
    keeps_alive_ = message.keep_alive() && !is_closing_;
    has_unread_body_ = !parser_->is_done();
    if (std::optional<HttpResponse> refusal = service_.check_head(request_)) {
        if (has_unread_body_) keeps_alive_ = false;
        phase_ = Phase::answering;
        return respond(*std::move(refusal));
    }
    if (beast::iequals(message[http::field::expect], "100-continue") && has_unread_body_) return send_continue();
    read_body();
}

// The bytes are no request, or a larger one than we take.
void Session::refuse_malformed(Error error) {
    ApiError refusal = bad_value("", "malformed HTTP request: " + error.message());
    if (error == http::error::header_limit) {
        refusal.status = 431;
        refusal.message = fmt::format("the request header is longer than {} bytes", service_.options().limits.header_bytes);
    } else if (error == http::error::body_limit) {
        refusal.status = 413;
        refusal.code = "request_too_large";
        refusal.message = fmt::format("the request body is larger than {} bytes", service_.options().limits.body_bytes);
    } else if (error.category() != make_error_code(http::error::end_of_stream).category()) {
        return close();  // the connection broke
    }
    keeps_alive_ = false;
    has_unread_body_ = true;
    phase_ = Phase::answering;
    respond(error_response(refusal));
}

void Session::send_continue() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue), [self = shared_from_this()](Error error, size_t) {
        if (error) return self->close();
        self->read_body();
    });
}

void Session::read_body() {
    stream_.expires_after(milliseconds(service_.options().timeouts.body_ms));
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](Error error, size_t) { self->on_body(error); });
}

void Session::on_body(Error error) {
    if (error == beast::error::timeout || error == asio::error::operation_aborted) return close();
    if (error) return refuse_malformed(error);
    has_unread_body_ = false;
    request_.body = std::move(parser_->get().body());
    parser_.reset();
    dispatch();
}

// --- answering ---------------------------------------------------------------------------------------------------------

void Session::dispatch() {
    phase_ = Phase::answering;
    stream_.expires_never();
    watch();
    if (!service_.is_heavy(request_)) return run_outcome(service_.handle(request_), exchange_);
    std::string body = std::move(request_.body);
    auto request = std::make_shared<HttpRequest>(request_);
    request->body = std::move(body);
    asio::post(work_, [self = shared_from_this(), request, exchange = exchange_]() mutable {
        auto outcome = std::make_shared<Outcome>(self->service_.handle(*request));
        request.reset();
        asio::post(self->stream_.get_executor(), [self, outcome, exchange] { self->run_outcome(std::move(*outcome), exchange); });
    });
}

void Session::run_outcome(Outcome outcome, uint64_t exchange) {
    if (phase_ != Phase::answering || exchange != exchange_) return;  // the client left; the activity cancels its jobs
    if (auto* response = std::get_if<HttpResponse>(&outcome)) return respond(std::move(*response));
    activity_ = std::move(std::get<std::unique_ptr<Activity>>(outcome));
    start_ticks();
    activity_->start(*this);
}

// Notices the client's leaving while nothing is read or written. Bytes that come are the next request's and are kept.
void Session::watch() {
    if (is_watching_) return;
    is_watching_ = true;
    stream_.socket().async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this(), exchange = exchange_](Error error) {
        self->is_watching_ = false;
        self->on_readable(error, exchange);
    });
}

void Session::on_readable(Error error, uint64_t exchange) {
    constexpr size_t kPipelinedBytesMax = 64 << 10;
    if (phase_ != Phase::answering) return;  // a finished answer is sent also to a client that has closed its own side
    if (error) return client_left();
    if (exchange != exchange_) return watch();  // the wait was begun for an earlier request
    stream_.socket().non_blocking(true, error);
    if (error) return client_left();
    const size_t bytes = stream_.socket().read_some(buffer_.prepare(4096), error);
    if (error == asio::error::would_block || error == asio::error::try_again) return watch();
    if (error) return client_left();
    buffer_.commit(bytes);
    if (buffer_.size() < kPipelinedBytesMax) watch();
}

void Session::start_ticks() {
    tick_timer_.expires_after(milliseconds(service_.options().timeouts.keep_alive_ms));
    tick_timer_.async_wait([self = shared_from_this(), exchange = exchange_](Error error) {
        if (error || exchange != self->exchange_ || !self->activity_ || self->phase_ != Phase::answering) return;
        self->activity_->on_tick();
        if (self->phase_ == Phase::answering) self->start_ticks();
    });
}

std::function<void()> Session::waker() {
    return [executor = stream_.get_executor(), weak = weak_from_this(), exchange = exchange_] {
        asio::post(executor, [weak, exchange] {
            const std::shared_ptr<Session> self = weak.lock();
            if (!self || exchange != self->exchange_ || !self->activity_ || self->phase_ != Phase::answering) return;
            self->activity_->on_wake();
        });
    };
}

void Session::client_left() {
    if (phase_ == Phase::closed) return;
    std::string fields = "client_gone";
    if (activity_) fields = activity_->on_closed();
    if (phase_ == Phase::answering) service_.note_done(request_, 499, fields);
    close();
}

// --- writing -----------------------------------------------------------------------------------------------------------

void Session::append_head(const HttpResponse& response, std::optional<size_t> content_length) {
    status_ = response.status;
    queued_ += fmt::format("HTTP/1.1 {} {}\r\nServer: espalier\r\nX-Request-Id: {}\r\n", response.status,
                           reason_phrase(response.status), request_.id);
    if (!request_.origin.empty()) {
        queued_ += "Vary: Origin\r\n";
        if (is_origin_allowed(request_, service_.options()))
            queued_ += "Access-Control-Allow-Origin: " + request_.origin + "\r\n";
    }
    for (const auto& [name, value] : response.headers) queued_ += name + ": " + value + "\r\n";
    if (response.status != 204) queued_ += "Content-Type: " + response.content_type + "\r\n";
    if (content_length && response.status != 204) queued_ += fmt::format("Content-Length: {}\r\n", *content_length);
    if (!content_length && is_chunked_) queued_ += "Transfer-Encoding: chunked\r\n";
    if (!content_length && !is_chunked_) keeps_alive_ = false;  // HTTP/1.0: the end of the connection ends the body
    if (keeps_alive_) {
        queued_ +=
            fmt::format("Connection: keep-alive\r\nKeep-Alive: timeout={}\r\n\r\n", service_.options().timeouts.idle_ms / 1000);
    } else {
        queued_ += "Connection: close\r\n\r\n";
    }
}

void Session::respond(HttpResponse response) {
    CHECK(phase_ == Phase::answering && !is_streaming_, "one answer per request");
    append_head(response, response.body.size());
    if (!is_head_request_) queued_ += response.body;
    finish_exchange(response.log_fields, response.status);
}

void Session::begin_stream(HttpResponse head) {
    CHECK(phase_ == Phase::answering && !is_streaming_, "one answer per request");
    is_streaming_ = true;
    append_head(head, std::nullopt);
    send();
}

void Session::write(std::string_view bytes) {
    CHECK(phase_ == Phase::answering && is_streaming_, "write comes between begin_stream and end_stream");
    if (bytes.empty()) return;
    if (is_chunked_) queued_ += fmt::format("{:x}\r\n", bytes.size());
    queued_ += bytes;
    if (is_chunked_) queued_ += "\r\n";
    send();
}

void Session::end_stream(std::string log_fields) {
    CHECK(phase_ == Phase::answering && is_streaming_, "end_stream ends a stream");
    if (is_chunked_) queued_ += "0\r\n\r\n";
    finish_exchange(log_fields, status_);
}

void Session::finish_exchange(std::string_view log_fields, int status) {
    phase_ = Phase::sending_last;
    is_streaming_ = false;
    tick_timer_.cancel();
    service_.note_done(request_, status, log_fields);
    drop_activity();
    send();
}

// The activity may be the caller, so it is destroyed from the strand's queue.
void Session::drop_activity() {
    if (!activity_) return;
    std::shared_ptr<Activity> activity = std::move(activity_);
    asio::post(stream_.get_executor(), [activity = std::move(activity)] {});
}

void Session::send() {
    if (is_sending_) return;
    if (sent_bytes_ == sending_.size()) {
        sending_.clear();
        sent_bytes_ = 0;
        std::swap(sending_, queued_);
        if (sending_.empty()) return on_all_sent();
    }
    is_sending_ = true;
    // The limit is on one piece of progress, not on the whole: a slow reader may take its time as long as it reads.
    stream_.expires_after(milliseconds(service_.options().timeouts.write_ms));
    stream_.async_write_some(asio::buffer(sending_.data() + sent_bytes_, sending_.size() - sent_bytes_),
                             [self = shared_from_this()](Error error, size_t bytes) { self->on_sent(error, bytes); });
}

void Session::on_sent(Error error, size_t bytes) {
    is_sending_ = false;
    if (phase_ == Phase::closed) return;
    stream_.expires_never();
    if (error) return client_left();
    sent_bytes_ += bytes;
    send();
}

void Session::on_all_sent() {
    if (phase_ == Phase::answering && activity_) return activity_->on_drained();
    if (phase_ != Phase::sending_last) return;
    if (keeps_alive_ && !is_closing_) return wait_for_request();
    if (has_unread_body_) return linger();
    close();
}

// Closing with unread input makes the kernel reset the connection, and the client might never see our answer: say that we
// are done, then read what still comes, within limits.
void Session::linger() {
    constexpr int kLingerMs = 2'000;
    if (phase_ != Phase::lingering) {
        phase_ = Phase::lingering;
        Error ignored;
        stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
        stream_.expires_after(milliseconds(kLingerMs));
    }
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(64 << 10), [self = shared_from_this()](Error error, size_t) {
        if (error || self->phase_ == Phase::closed) return self->close();
        self->linger();
    });
}

void Session::close() {
    if (phase_ == Phase::closed) return;
    phase_ = Phase::closed;
    tick_timer_.cancel();
    drop_activity();
    Error ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
}

}  // namespace espalier::server
