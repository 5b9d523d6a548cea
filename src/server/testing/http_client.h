// A plain blocking HTTP client for tests, on a raw socket: it sends exactly the bytes given, so that tests can also send wrong
// ones, stop half-way, or leave.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"

namespace espalier::server::testing {

struct Reply {
    int status = 0;  // 0 = the connection ended before a complete answer
    std::string head;
    std::string body;  // chunks joined

    Json json() const {
        auto parsed = parse_json(body, "reply");
        CHECK(parsed.has_value(), ("not JSON: " + body).c_str());
        return *parsed;
    }
    // The data lines of an event stream, without [DONE].
    std::vector<Json> events() const {
        std::vector<Json> out;
        for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
            const size_t end = body.find("\n\n", at);
            const std::string data = body.substr(at + 6, end - at - 6);
            if (data != "[DONE]") out.push_back(*parse_json(data, "event"));
            at = end;
        }
        return out;
    }
    bool has_header(std::string_view line) const { return head.find("\r\n" + std::string(line) + "\r\n") != std::string::npos; }
};

class Connection {
public:
    explicit Connection(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "loopback connects");
        const timeval limit{20, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    }
    ~Connection() { leave(); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // False if the server has closed.
    bool send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n <= 0) return false;
            bytes.remove_prefix(static_cast<size_t>(n));
        }
        return true;
    }
    Reply request(std::string_view method, std::string_view path, std::string_view body = "", std::string_view headers = "") {
        send(request_bytes(method, path, body, headers));
        return read_reply(method == "HEAD");
    }
    static std::string request_bytes(std::string_view method, std::string_view path, std::string_view body,
                                     std::string_view headers) {
        std::string out =
            std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers);
        if (!body.empty()) out += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
        return out + "\r\n" + std::string(body);
    }

    Reply read_reply(bool is_head = false) {
        Reply reply;
        size_t head_end = 0;
        while ((head_end = buffer_.find("\r\n\r\n")) == std::string::npos) {
            if (!receive()) return reply;
        }
        reply.head = buffer_.substr(0, head_end + 2);
        buffer_.erase(0, head_end + 4);
        const int status = std::atoi(reply.head.c_str() + 9);
        if (!is_head && !read_body(reply)) return reply;
        reply.status = status;
        return reply;
    }
    // Reads until the text has come. False if the connection ends before.
    bool read_until(std::string_view text) {
        while (buffer_.find(text) == std::string::npos) {
            if (!receive()) return false;
        }
        return true;
    }
    // True if the server has closed and nothing more comes.
    bool is_closed() { return buffer_.empty() && !receive(); }
    void leave() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    void shrink_receive_buffer() {
        const int bytes = 4096;
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }

private:
    bool receive() {
        char bytes[16384];
        const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
        if (n <= 0) return false;
        buffer_.append(bytes, static_cast<size_t>(n));
        return true;
    }
    bool take(size_t n, std::string& out) {
        while (buffer_.size() < n) {
            if (!receive()) return false;
        }
        out += buffer_.substr(0, n);
        buffer_.erase(0, n);
        return true;
    }
    bool read_body(Reply& reply) {
        if (const size_t at = reply.head.find("Content-Length: "); at != std::string::npos) {
            return take(static_cast<size_t>(std::atoll(reply.head.c_str() + at + 16)), reply.body);
        }
        if (reply.head.find("chunked") == std::string::npos) {
            if (reply.head.find(" 204 ") != std::string::npos) return true;
            while (receive()) {
            }
            reply.body = std::move(buffer_);
            buffer_.clear();
            return true;
        }
        for (;;) {
            size_t line_end = 0;
            while ((line_end = buffer_.find("\r\n")) == std::string::npos) {
                if (!receive()) return false;
            }
            const size_t bytes = std::strtoull(buffer_.c_str(), nullptr, 16);
            buffer_.erase(0, line_end + 2);
            std::string end;
            if (!take(bytes, reply.body) || !take(2, end)) return false;
            if (bytes == 0) return true;
        }
    }

    int fd_;
    std::string buffer_;
};

}  // namespace espalier::server::testing
