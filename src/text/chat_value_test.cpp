#include "text/chat_value.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace espalier::text {
namespace {

std::string round_trip(const std::string& json) {
    const auto value = parse_json_value(json, "test");
    EXPECT_TRUE(value) << json << ": " << (value ? "" : value.error().message);
    if (!value) return "";
    const auto text = to_json_text(*value);
    EXPECT_TRUE(text);
    return text ? *text : "";
}

TEST(ChatValue, keeps_what_a_template_can_tell_apart) {
    EXPECT_EQ(round_trip(R"({"b":1,"a":[true,null,1.0,-0.0,1e5]})"), R"({"b": 1, "a": [true, null, 1.0, -0.0, 100000.0]})");
    EXPECT_EQ(round_trip("123456789012345678901234567890"), "123456789012345678901234567890");
    EXPECT_EQ(round_trip("-9223372036854775808"), "-9223372036854775808");
    EXPECT_EQ(round_trip("-9223372036854775809"), "-9223372036854775809");
    EXPECT_EQ(round_trip("-0"), "0");
    EXPECT_EQ(round_trip("[1e16, 1e15, 1e-4, 1e-5, 1.5e300, 5e-324]"),
              "[1e+16, 1000000000000000.0, 0.0001, 1e-05, 1.5e+300, 5e-324]");
    EXPECT_EQ(round_trip("[1e999, -1e999, 1e-999, NaN, Infinity, -Infinity]"),
              "[Infinity, -Infinity, 0.0, NaN, Infinity, -Infinity]");
    EXPECT_EQ(round_trip("[0.1, 123456789.123456789, 1.7976931348623157e308]"),
              "[0.1, 123456789.12345679, 1.7976931348623157e+308]");
    EXPECT_EQ(round_trip(" { } "), "{}");
    EXPECT_EQ(round_trip("[]"), "[]");
}

TEST(ChatValue, strings) {
    EXPECT_EQ(round_trip(R"("é\u00e9\ud83d\ude00\n\t\"\\\/\b\f\r\u0001")"), "\"éé😀\\n\\t\\\"\\\\/\\b\\f\\r\\u0001\"");
    EXPECT_EQ(round_trip("\"\x7f\xe2\x80\xa8\""), "\"\x7f\xe2\x80\xa8\"");
    EXPECT_EQ(round_trip(R"("\ud83d")"), "\"\xef\xbf\xbd\"");
    EXPECT_EQ(round_trip(R"("\ude00\ud83dx")"), "\"\xef\xbf\xbd\xef\xbf\xbdx\"");
    EXPECT_EQ(round_trip(R"("\u0000")"), R"("\u0000")");
}

TEST(ChatValue, the_last_of_equal_keys_wins_in_the_first_ones_place) {
    EXPECT_EQ(round_trip(R"({"a": 1, "b": 2, "a": 3})"), R"({"a": 3, "b": 2})");
    std::string many = "{\"k0\": -1";
    for (int i = 0; i < 200; ++i) many += ", \"k" + std::to_string(i) + "\": " + std::to_string(i);
    const auto value = parse_json_value(many + ", \"k150\": 7, \"k3\": 8}", "test");
    ASSERT_TRUE(value);
    ASSERT_EQ(value->as_dict()->size(), 200u);
    EXPECT_EQ(*value->find("k150")->as_int(), 7);
    EXPECT_EQ(*value->find("k3")->as_int(), 8);
    EXPECT_EQ(*value->find("k0")->as_int(), 0);
    EXPECT_EQ(value->as_dict()->front().first, "k0");
    EXPECT_EQ(value->find("none"), nullptr);
    EXPECT_EQ(Value(1).find("none"), nullptr);
}

TEST(ChatValue, bad_json_is_refused_with_its_byte) {
    const std::pair<std::string, std::string> cases[] = {
        {"", "test: byte 0: the text ends where a JSON value is expected"},
        {"[1, 2", "test: byte 5: expected ',' or ']' in an array"},
        {"[1 2]", "test: byte 3: expected ',' or ']' in an array"},
        {"[1,]", "test: byte 3: expected a JSON value"},
        {"{\"a\" 1}", "test: byte 5: expected ':' after a member name"},
        {"{a: 1}", "test: byte 1: expected a member name in double quotes"},
        {"{\"a\": 1,}", "test: byte 8: expected a member name in double quotes"},
        {"\"abc", "test: byte 4: the text ends inside a string"},
        {"\"a\nb\"", "test: byte 2: control character inside a string"},
        {"\"\\x\"", "test: byte 2: unknown escape in a string"},
        {"\"\\u12g4\"", "test: byte 2: unknown escape in a string"},
        {"\"\\", "test: byte 2: unknown escape in a string"},
        {"1 2", "test: byte 2: text after the end of the JSON value"},
        {"01", "test: byte 1: text after the end of the JSON value"},
        {"1.", "test: byte 1: text after the end of the JSON value"},
        {"+1", "test: byte 0: expected a JSON value"},
        {"-", "test: byte 0: expected a JSON value"},
        {"tru", "test: byte 0: expected a JSON value"},
        {"\"\xff\"", "test: not valid UTF-8"},
    };
    for (const auto& [json, message] : cases) {
        const auto value = parse_json_value(json, "test");
        ASSERT_FALSE(value) << json;
        EXPECT_EQ(value.error().message, message) << json;
        EXPECT_EQ(value.error().code, ErrorCode::invalid_input);
    }
}

TEST(ChatValue, depth_and_digits_are_bounded) {
    const std::string fits(kJsonDepthMax, '[');
    EXPECT_TRUE(parse_json_value(fits + std::string(kJsonDepthMax, ']'), "test"));
    EXPECT_FALSE(parse_json_value(std::string(1'000'000, '['), "test"));
    EXPECT_FALSE(parse_json_value(std::string(5'000, '9'), "test"));
    EXPECT_TRUE(parse_json_value(std::string(4'000, '9'), "test"));
}

TEST(ChatValue, undefined_has_no_json) {
    EXPECT_FALSE(to_json_text(Value()));
    EXPECT_FALSE(to_json_text(Value(ValueList{Value()})));
    EXPECT_EQ(*to_json_text(Value::none()), "null");
}

TEST(ChatValue, a_string_is_shared_not_copied) {
    const Value value("text");
    EXPECT_EQ(value.share_string().get(), value.as_string());
    EXPECT_EQ(Value(1).share_string(), nullptr);
}

}  // namespace
}  // namespace espalier::text
