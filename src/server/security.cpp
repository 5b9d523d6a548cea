#include "server/security.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace espalier::server {
namespace {

// "[::1]:80" -> "::1", "name:80" -> "name".
std::string host_name(std::string_view host) {
    if (host.starts_with('[')) {
        const size_t end = host.find(']');
        return std::string(end == std::string_view::npos ? host : host.substr(1, end - 1));
    }
    std::string name(host.substr(0, host.rfind(':')));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
}

bool is_address(const std::string& host) {
    in6_addr address{};
    return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool contains(const std::vector<std::string>& list, std::string_view entry) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& allowed) { return allowed == "*" || allowed == entry; });
}

bool is_host_allowed(const HttpRequest& head, const ServerOptions& options) {
    const std::string name = host_name(head.host);
    return is_address(name) || name == "localhost" || name == options.host || contains(options.allowed_hosts, name);
}

std::string_view bearer_token(const HttpRequest& head) {
    constexpr std::string_view kBearer = "bearer ";
    if (head.authorization.size() <= kBearer.size()) return {};
    const std::string_view scheme = std::string_view(head.authorization).substr(0, kBearer.size());
    const bool is_bearer =
        std::equal(scheme.begin(), scheme.end(), kBearer.begin(), [](unsigned char a, char b) { return std::tolower(a) == b; });
    return is_bearer ? std::string_view(head.authorization).substr(kBearer.size()) : std::string_view();
}

}  // namespace

bool equal_constant_time(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    volatile unsigned char difference = 0;
    for (size_t i = 0; i < a.size(); ++i) difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
    return difference == 0;
}

const std::string* used_key(const HttpRequest& head, const ServerOptions& options) {
    const std::string_view bearer = bearer_token(head);
    const std::string* used = nullptr;
    for (const std::string& key : options.api_keys) {
        // No short cut: every key is compared with both headers.
        const bool in_bearer = equal_constant_time(key, bearer);
        const bool in_header = equal_constant_time(key, head.x_api_key);
        if (in_bearer | in_header) used = &key;
    }
    return used;
}

bool is_loopback(std::string_view host) {
    const std::string name(host);
    in_addr v4{};
    if (inet_pton(AF_INET, name.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    return name == "localhost" || name == "::1";
}

bool is_origin_allowed(const HttpRequest& head, const ServerOptions& options) {
    if (head.origin.empty() || contains(options.allowed_origins, head.origin)) return true;
    return !head.host.empty() && (head.origin == "http://" + head.host || head.origin == "https://" + head.host);
}

std::optional<ApiError> check_access(const HttpRequest& head, const ServerOptions& options, KeyCheck key_check) {
    if (!is_host_allowed(head, options)) {
        ApiError error =
            bad_value("", fmt::format("Host \"{}\" is not a name of this server; allow it with --allowed-host", head.host));
        error.status = 403;
        error.code = "host_not_allowed";
        return error;
    }
    const bool is_reading = head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS";
    if (!is_reading && !is_origin_allowed(head, options)) {
        ApiError error = bad_value("", fmt::format("requests from web pages of \"{}\" are not allowed", head.origin));
        error.status = 403;
        error.code = "origin_not_allowed";
        return error;
    }
    if (key_check == KeyCheck::required && !options.api_keys.empty() && used_key(head, options) == nullptr) {
        return ApiError{401,
                        "authentication_error",
                        "invalid_api_key",
                        "",
                        "missing or wrong API key; send it as \"Authorization: Bearer …\" or \"x-api-key\"",
                        0,
                        {}};
    }
    return std::nullopt;
}

}  // namespace espalier::server
