#include "server/security.h"

#include <gtest/gtest.h>

namespace espalier::server {
namespace {

TEST(Security, LoopbackIsRecognised) {
    for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
    for (const char* host : {"0.0.0.0", "192.168.1.2", "::", "127.0.0.1.example", "localhost.example", ""}) {
        EXPECT_FALSE(is_loopback(host)) << host;
    }
}

TEST(Security, KeysAreComparedWhole) {
    EXPECT_TRUE(equal_constant_time("abc", "abc"));
    for (const char* other : {"", "ab", "abd", "xbc", "abcd"}) EXPECT_FALSE(equal_constant_time("abc", other)) << other;
}

HttpRequest head_with(std::string host, std::string origin = "") {
    HttpRequest head;
    head.method = "POST";
    head.host = std::move(host);
    head.origin = std::move(origin);
    return head;
}

TEST(Security, HostsThatCouldBeRebound) {
    ServerOptions options;
    for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7"}) {
        EXPECT_FALSE(check_access(head_with(host), options, KeyCheck::required)) << host;
    }
    for (const char* host : {"", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "[evil]:1", "["}) {
        EXPECT_TRUE(check_access(head_with(host), options, KeyCheck::required)) << host;
    }
    options.allowed_hosts = {"*"};
    EXPECT_FALSE(check_access(head_with("evil.example"), options, KeyCheck::required));
}

TEST(Security, OriginsOfOtherPages) {
    const ServerOptions options;
    EXPECT_FALSE(check_access(head_with("localhost:80", "http://localhost:80"), options, KeyCheck::required));
    for (const char* origin : {"http://localhost:81", "http://evil.example", "null", "localhost:80"}) {
        EXPECT_TRUE(check_access(head_with("localhost:80", origin), options, KeyCheck::required)) << origin;
    }
}

}  // namespace
}  // namespace espalier::server
