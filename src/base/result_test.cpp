#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace espalier {
namespace {

Result<int> parse_digit(char c) {
    if (c < '0' || c > '9') return invalid_input("not a digit");
    return c - '0';
}

Result<int> add_digits(char a, char b) {
    TRY_ASSIGN(const int left, parse_digit(a));
    TRY_ASSIGN(const int right, parse_digit(b));
    return left + right;
}

Status check_digit(char c, int& calls) {
    TRY(add_digits(c, '0'));
    ++calls;
    return {};
}

TEST(Result, HoldsAValueOrAnError) {
    const Result<int> good = parse_digit('7');
    ASSERT_TRUE(good);
    EXPECT_EQ(*good, 7);
    const Result<int> bad = parse_digit('x');
    ASSERT_FALSE(bad.has_value());
    EXPECT_EQ(bad.error().code, ErrorCode::invalid_input);
    EXPECT_EQ(bad.error().message, "not a digit");
}

TEST(Result, TryAssignStopsAtTheFirstError) {
    EXPECT_EQ(*add_digits('2', '3'), 5);
    EXPECT_FALSE(add_digits('x', '3'));
    EXPECT_FALSE(add_digits('2', 'x'));
}

TEST(Result, TryReturnsTheErrorAndSkipsTheRest) {
    int calls = 0;
    EXPECT_TRUE(check_digit('1', calls));
    EXPECT_EQ(calls, 1);
    const Status status = check_digit('x', calls);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "not a digit");
    EXPECT_EQ(calls, 1);
}

TEST(Result, MovesWhatCannotBeCopied) {
    auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(4); };
    std::unique_ptr<int> owned = *make();
    EXPECT_EQ(*owned, 4);
}

TEST(Result, NamesEveryCode) {
    EXPECT_EQ(to_string(ErrorCode::invalid_input), "invalid_input");
    EXPECT_EQ(to_string(ErrorCode::corrupt_data), "corrupt_data");
    EXPECT_EQ(to_string(ErrorCode::unsupported), "unsupported");
    EXPECT_EQ(to_string(ErrorCode::exhausted), "exhausted");
    EXPECT_EQ(to_string(ErrorCode::device), "device");
    EXPECT_EQ(to_string(ErrorCode::cancelled), "cancelled");
    EXPECT_EQ(to_string(ErrorCode::internal), "internal");
}

TEST(ResultDeathTest, ReadingTheWrongSideAborts) {
    Result<int> bad = parse_digit('x');
    EXPECT_DEATH(static_cast<void>(*bad), "value\\(\\) of a Result that holds an error");
    Result<int> good = parse_digit('1');
    EXPECT_DEATH(static_cast<void>(good.error()), "error\\(\\) of a Result that holds a value");
}

TEST(CheckDeathTest, SaysFileConditionAndReason) {
    const int n = 3;
    EXPECT_DEATH(CHECK(n == 4, "n counts the legs"), "result_test.cpp:[0-9]+: CHECK failed: n == 4: n counts the legs");
}

}  // namespace
}  // namespace espalier
