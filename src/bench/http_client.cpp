// The only file of the folder that includes Boost.Beast. Operations are asynchronous underneath because only those honour
// Beast's deadlines; each call runs its own io_context to completion, so that to callers everything is a plain blocking call.
#include "bench/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <limits>
#include <optional>

namespace espalier::bench {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr uint32_t kHeaderBytesMax = 64 << 10;

HttpFault fault_of(const error_code& ec) {
    if (ec == beast::error::timeout || ec == asio::error::timed_out) return HttpFault::timeout;
    if (ec.category() == http::make_error_code(http::error::bad_version).category()) {
        const bool is_cut = ec == http::error::partial_message || ec == http::error::end_of_stream;
        return is_cut ? HttpFault::dropped : HttpFault::protocol;
    }
    return HttpFault::dropped;
}

std::string media_type(std::string_view header) {
    std::string type(header.substr(0, header.find(';')));
    while (!type.empty() && type.back() == ' ') type.pop_back();
    std::ranges::transform(type, type.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return type;
}

}  // namespace

std::string_view to_string(HttpFault fault) {
    switch (fault) {
        case HttpFault::none: return "none";
        case HttpFault::connect: return "connect";
        case HttpFault::timeout: return "timeout";
        case HttpFault::dropped: return "dropped";
        case HttpFault::protocol: return "protocol";
        case HttpFault::aborted: return "aborted";
    }
    return "unknown";
}

Result<ServerAddress> parse_server_url(std::string_view url) {
    if (url.starts_with("https://")) {
        return unsupported(fmt::format("server URL '{}': https is not supported, put a proxy in front or use http://", url));
    }
    std::string_view rest = url;
    if (rest.starts_with("http://")) rest.remove_prefix(7);
    ServerAddress address;
    const size_t slash = rest.find('/');
    std::string_view authority = rest.substr(0, slash);
    std::string_view prefix = slash == std::string_view::npos ? std::string_view() : rest.substr(slash);
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    if (prefix.ends_with("/v1")) prefix.remove_suffix(3);
    address.prefix = prefix;
    const size_t bracket = authority.starts_with('[') ? authority.find(']') : std::string_view::npos;
    const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
    address.host = authority.substr(0, colon);
    if (bracket != std::string_view::npos) address.host = authority.substr(1, bracket - 1);
    const auto is_odd = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '@' || c == ':' || c == '['; };
    const bool is_bad_host =
        address.host.empty() || (bracket == std::string_view::npos && std::ranges::any_of(address.host, is_odd));
    if (is_bad_host) return invalid_input(fmt::format("server URL '{}': expected http://HOST:PORT", url));
    if (colon == std::string_view::npos) return address;
    const std::string_view port = authority.substr(colon + 1);
    const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (ec != std::errc() || end != port.data() + port.size() || address.port == 0) {
        return invalid_input(fmt::format("server URL '{}': port '{}' is not a number from 1 to 65535", url, port));
    }
    return address;
}

struct HttpClient::Impl {
    explicit Impl(ServerAddress where) : address(std::move(where)), chunk(kReadBytes) {}

    // Runs one asynchronous operation to its end.
    template <class Start>
    error_code run(Start start) {
        error_code result = asio::error::would_block;
        start([&result](const error_code& ec, auto&&...) { result = ec; });
        io.restart();
        io.run();
        return result;
    }

    error_code connect(Clock::time_point deadline) {
        buffer.clear();
        error_code ec;
        asio::ip::tcp::resolver resolver(io);
        const auto endpoints = resolver.resolve(address.host, std::to_string(address.port), ec);
        if (ec) return ec;
        stream.emplace(io);
        stream->expires_at(deadline);
        ec = run([&](auto handler) { stream->async_connect(endpoints, handler); });
        if (ec) return ec;
        stream->socket().set_option(asio::ip::tcp::no_delay(true), ec);
        return {};
    }

    void close() {
        if (!stream) return;
        error_code ignored;
        stream->socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
        stream.reset();
    }

    // One try on the connection at hand. got_bytes tells whether any byte of a response arrived.
    HttpOutcome attempt(const http::request<http::string_body>& message, Clock::time_point deadline, const BodySink& sink,
                        bool& got_bytes);
    HttpOutcome read_body(http::response_parser<http::buffer_body>& parser, HttpOutcome outcome, const BodySink& sink);

    ServerAddress address;
    asio::io_context io;
    std::optional<beast::tcp_stream> stream;
    beast::flat_buffer buffer;
    std::vector<char> chunk;
};

HttpOutcome HttpClient::Impl::attempt(const http::request<http::string_body>& message, Clock::time_point deadline,
                                      const BodySink& sink, bool& got_bytes) {
    HttpOutcome outcome;
    stream->expires_at(deadline);
    error_code ec = run([&](auto handler) { http::async_write(*stream, message, handler); });
    const error_code write_error = ec;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<uint64_t>::max());  // sinks have limits of their own
    parser.header_limit(kHeaderBytesMax);
    // A server may refuse a long request and answer before it has read it all, so the answer is looked for in any case.
    if (ec != beast::error::timeout) {
        ec = run([&](auto handler) { http::async_read_header(*stream, buffer, parser, handler); });
    }
    got_bytes = parser.got_some();
    if (ec) {
        const error_code& cause = write_error ? write_error : ec;
        outcome.fault = fault_of(cause);
        outcome.detail = cause.message();
        close();
        return outcome;
    }
    outcome.status = parser.get().result_int();
    const auto type = parser.get()[http::field::content_type];
    outcome.content_type = media_type({type.data(), type.size()});
    outcome = read_body(parser, std::move(outcome), sink);
    if (outcome.fault != HttpFault::none || !parser.keep_alive() || write_error) close();
    return outcome;
}

HttpOutcome HttpClient::Impl::read_body(http::response_parser<http::buffer_body>& parser, HttpOutcome outcome,
                                        const BodySink& sink) {
    while (!parser.is_done()) {
        auto& body = parser.get().body();
        body.data = chunk.data();
        body.size = chunk.size();
        body.more = true;
        const error_code ec = run([&](auto handler) { http::async_read_some(*stream, buffer, parser, handler); });
        const size_t n_bytes = chunk.size() - body.size;
        if (n_bytes > 0 && !sink(outcome.status, {chunk.data(), n_bytes})) {
            outcome.fault = HttpFault::aborted;
            outcome.detail = "stopped by the client";
            return outcome;
        }
        if (ec && ec != http::error::need_buffer) {
            outcome.fault = fault_of(ec);
            outcome.detail = ec.message();
            return outcome;
        }
    }
    return outcome;
}

HttpClient::HttpClient(ServerAddress address) : impl_(std::make_unique<Impl>(std::move(address))) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;

const ServerAddress& HttpClient::address() const {
    return impl_->address;
}

HttpOutcome HttpClient::exchange(const HttpRequest& request, double timeout_s, const BodySink& sink) {
    http::request<http::string_body> message;
    message.version(11);
    message.method_string(request.method);
    message.target(impl_->address.prefix + request.path);
    message.set(http::field::host, fmt::format("{}:{}", impl_->address.host, impl_->address.port));
    message.set(http::field::user_agent, "espalier-bench");
    for (const auto& [name, value] : request.headers) message.set(name, value);
    message.body() = request.body;
    message.prepare_payload();
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));

    HttpOutcome outcome;
    bool was_reconnected = false;
    for (int attempt = 0; attempt < 2; ++attempt) {
        const bool is_kept = impl_->stream.has_value();
        if (!is_kept) {
            if (const error_code ec = impl_->connect(deadline)) {
                impl_->close();
                outcome.fault = ec == beast::error::timeout ? HttpFault::timeout : HttpFault::connect;
                outcome.detail = ec.message();
                break;
            }
        }
        bool got_bytes = false;
        outcome = impl_->attempt(message, deadline, sink, got_bytes);
        if (!is_kept || got_bytes || outcome.fault != HttpFault::dropped) break;
        was_reconnected = true;
    }
    outcome.was_reconnected = was_reconnected;
    return outcome;
}

HttpReply fetch(HttpClient& client, const HttpRequest& request, double timeout_s, size_t bytes_max) {
    HttpReply reply;
    reply.outcome = client.exchange(request, timeout_s, [&](int, std::string_view bytes) {
        if (reply.body.size() + bytes.size() > bytes_max) return false;
        reply.body += bytes;
        return true;
    });
    return reply;
}

}  // namespace espalier::bench
