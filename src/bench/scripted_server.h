// Test support: a tiny HTTP server on loopback whose handler writes whatever bytes a test wants, well formed or not.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace espalier::bench::testing {

struct SeenRequest {
    std::string head;  // request line and headers
    std::string body;
    std::string line() const { return head.substr(0, head.find("\r\n")); }
    bool is_for(std::string_view path) const {
        return line().find(std::string(" ") + std::string(path) + " ") != std::string::npos;
    }
};

// What a handler does with one request; the connection stays open unless it says close.
class Connection {
public:
    explicit Connection(int socket) : socket_(socket) {}
    void send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n <= 0) return close();
            bytes.remove_prefix(static_cast<size_t>(n));
        }
    }
    void close() { is_closed_ = true; }
    bool is_closed() const { return is_closed_; }

    // A complete response with a Content-Length.
    void respond(int status, std::string_view type, std::string_view body) {
        send("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: " + std::string(type) +
             "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
    }
    void begin_stream(std::string_view type = "text/event-stream") {
        send("HTTP/1.1 200 OK\r\nContent-Type: " + std::string(type) + "\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
    void chunk(std::string_view bytes) {
        char size[24];
        std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
        send(size + std::string(bytes) + "\r\n");
    }
    void end_stream() { send("0\r\n\r\n"); }

private:
    int socket_;
    bool is_closed_ = false;
};

class ScriptedServer {
public:
    using Handler = std::function<void(const SeenRequest& request, Connection& connection)>;

    explicit ScriptedServer(Handler handler) : handler_(std::move(handler)) {
        listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener_, 16) != 0)
            std::abort();
        socklen_t length = sizeof address;
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
        port_ = ntohs(address.sin_port);
        acceptor_ = std::thread([this] { accept_loop(); });
    }

    ~ScriptedServer() {
        is_stopping_ = true;
        ::shutdown(listener_, SHUT_RDWR);
        acceptor_.join();
        ::close(listener_);
        {
            const std::lock_guard lock(mutex_);
            for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
        }
        for (std::thread& worker : workers_) worker.join();
    }

    uint16_t port() const { return port_; }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    int n_connections() const { return n_connections_; }
    bool is_stopping() const { return is_stopping_; }
    std::vector<SeenRequest> seen() {
        const std::lock_guard lock(mutex_);
        return seen_;
    }

private:
    void accept_loop() {
        while (!is_stopping_) {
            const int socket = ::accept(listener_, nullptr, nullptr);
            if (socket < 0) continue;
            const int one = 1;
            ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            ++n_connections_;
            const std::lock_guard lock(mutex_);
            open_.push_back(socket);
            workers_.emplace_back([this, socket] { serve(socket); });
        }
    }

    static bool read_request(int socket, std::string& pending, SeenRequest& request) {
        char bytes[65536];
        size_t head_end = std::string::npos;
        size_t body_size = 0;
        while (true) {
            if (head_end == std::string::npos) {
                head_end = pending.find("\r\n\r\n");
                if (head_end != std::string::npos) {
                    std::string lower = pending.substr(0, head_end);
                    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
                    const size_t at = lower.find("content-length:");
                    if (at != std::string::npos) body_size = std::stoul(lower.substr(at + 15));
                }
            }
            if (head_end != std::string::npos && pending.size() >= head_end + 4 + body_size) break;
            const ssize_t n = ::recv(socket, bytes, sizeof bytes, 0);
            if (n <= 0) return false;
            pending.append(bytes, static_cast<size_t>(n));
        }
        request.head = pending.substr(0, head_end);
        request.body = pending.substr(head_end + 4, body_size);
        pending.erase(0, head_end + 4 + body_size);
        return true;
    }

    void serve(int socket) {
        std::string pending;
        SeenRequest request;
        while (!is_stopping_ && read_request(socket, pending, request)) {
            {
                const std::lock_guard lock(mutex_);
                seen_.push_back(request);
            }
            Connection connection(socket);
            handler_(request, connection);
            if (connection.is_closed()) break;
        }
        const std::lock_guard lock(mutex_);
        std::erase(open_, socket);
        ::close(socket);
    }

    Handler handler_;
    int listener_ = -1;
    uint16_t port_ = 0;
    std::thread acceptor_;
    std::atomic<bool> is_stopping_ = false;
    std::atomic<int> n_connections_ = 0;
    std::mutex mutex_;
    std::vector<int> open_;
    std::vector<std::thread> workers_;
    std::vector<SeenRequest> seen_;
};

}  // namespace espalier::bench::testing
