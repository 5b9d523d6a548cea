#include "server/server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/security.h"
#include "server/session.h"

namespace espalier::server {

using asio::ip::tcp;

struct HttpServer::Impl : SessionOwner {
    explicit Impl(ServerOptions options)
        : service(std::move(options)),
          io(service.options().io_threads),
          work(static_cast<size_t>(service.options().work_threads)),
          acceptor(asio::make_strand(io)) {}

    Status listen();
    void accept();
    void admit(tcp::socket socket);
    void on_session_end(Session* session) override;
    std::vector<std::shared_ptr<Session>> live_sessions();
    bool wait_for_sessions(int ms);
    void stop(int grace_ms);

    Service service;
    asio::io_context io;
    asio::thread_pool work;
    tcp::acceptor acceptor;
    uint16_t port = 0;
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable session_ended;
    std::unordered_map<Session*, std::weak_ptr<Session>> sessions;
    bool is_stopped = false;
};

Status HttpServer::Impl::listen() {
    const ServerOptions& options = service.options();
    beast::error_code error;
    const asio::ip::address address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
    if (error) return invalid_input(fmt::format("--host {}: expected an IP address or localhost", options.host));
    const tcp::endpoint endpoint(address, options.port);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
        return exhausted(
            fmt::format("cannot listen on {} port {}: {}; choose another --port", options.host, options.port, error.message()));
    }
    port = acceptor.local_endpoint(error).port();
    return {};
}

void HttpServer::Impl::accept() {
    acceptor.async_accept(asio::make_strand(io), [this](beast::error_code error, tcp::socket socket) {
        if (error == asio::error::operation_aborted) return;
        if (!acceptor.is_open()) return;
        if (!error) admit(std::move(socket));
        if (error == asio::error::no_descriptors) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        accept();
    });
}

void HttpServer::Impl::admit(tcp::socket socket) {
    std::shared_ptr<Session> session;
    {
        std::lock_guard lock(mutex);
        if (static_cast<int>(sessions.size()) < service.options().limits.connections) {
            session = std::make_shared<Session>(std::move(socket), service, work, *this);
            sessions.emplace(session.get(), session);
        }
    }
    if (session) return session->start();
    static constexpr std::string_view kFull =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    beast::error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(kFull), ignored);
    service.log().warning(fmt::format("connection refused: {} are open, the limit", service.options().limits.connections));
}

void HttpServer::Impl::on_session_end(Session* session) {
    std::lock_guard lock(mutex);
    sessions.erase(session);
    session_ended.notify_all();
}

std::vector<std::shared_ptr<Session>> HttpServer::Impl::live_sessions() {
    std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<Session>> live;
    for (const auto& [key, weak] : sessions) {
        if (std::shared_ptr<Session> session = weak.lock()) live.push_back(std::move(session));
    }
    return live;
}

bool HttpServer::Impl::wait_for_sessions(int ms) {
    std::unique_lock lock(mutex);
    return session_ended.wait_for(lock, std::chrono::milliseconds(ms), [this] { return sessions.empty(); });
}

void HttpServer::Impl::stop(int grace_ms) {
    if (is_stopped) return;
    is_stopped = true;
    asio::post(acceptor.get_executor(), [this] {
        beast::error_code ignored;
        acceptor.close(ignored);
    });
    for (const auto& session : live_sessions()) session->close_gracefully();
    if (!wait_for_sessions(grace_ms)) {
        for (const auto& session : live_sessions()) session->close_now();
        wait_for_sessions(2000);  // a request being parsed or rendered ends by itself
    }
    work.join();
    io.stop();
    for (std::thread& thread : threads) thread.join();
    // No thread runs here any more; what is left lets go of its jobs before the executor they notify is gone.
    for (const auto& session : live_sessions()) session->abandon();
}

HttpServer::HttpServer() = default;

HttpServer::~HttpServer() {
    stop(0);
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(ServerOptions options) {
    CHECK(options.io_threads > 0 && options.work_threads > 0, "a server needs threads");
    if (!is_loopback(options.host) && options.api_keys.empty() && options.key_policy == KeyPolicy::loopback_may_omit) {
        return invalid_input(fmt::format(
            "--host {} is reachable from other machines and there is no --api-key; give one, or force it", options.host));
    }
    std::unique_ptr<HttpServer> server(new HttpServer());
    server->impl_ = std::make_unique<Impl>(std::move(options));
    Impl& impl = *server->impl_;
    TRY(impl.listen());
    impl.accept();
    for (int i = 0; i < impl.service.options().io_threads; ++i) {
        impl.threads.emplace_back([&impl] {
            for (;;) {
                try {
                    impl.io.run();
                    return;
                } catch (const std::exception& e) {
                    impl.service.log().error(fmt::format("I/O thread: exception: {}", e.what()));
                }
            }
        });
    }
    return server;
}

uint16_t HttpServer::port() const {
    return impl_->port;
}

std::string HttpServer::url() const {
    const std::string& host = impl_->service.options().host;
    const bool is_v6 = host.find(':') != std::string::npos;
    return fmt::format("http://{}:{}", is_v6 ? "[" + host + "]" : host, port());
}

void HttpServer::set_progress(double share) {
    impl_->service.set_progress(share);
}

void HttpServer::attach(std::shared_ptr<const ServerContext> context) {
    impl_->service.attach(std::move(context));
}

void HttpServer::stop(int grace_ms) {
    if (impl_) impl_->stop(grace_ms);
}

}  // namespace espalier::server
