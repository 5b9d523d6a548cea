#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier {
namespace {

std::string nested(int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, KeepsKeyOrderAndNumberKinds) {
    const auto value = parse_json(R"({"b": 1, "a": 1.0, "c": -0, "big": 18446744073709551615})", "test");
    ASSERT_TRUE(value);
    EXPECT_EQ(dump_json(*value), R"({"b":1,"a":1.0,"c":0,"big":18446744073709551615})");
    EXPECT_TRUE((*value)["b"].is_number_integer());
    EXPECT_TRUE((*value)["a"].is_number_float());
}

TEST(Json, KeepsUnicodeAsItIs) {
    const auto value = parse_json("\"h\\u00e9 \xf0\x9f\x98\x80 \\ud83d\\ude00\"", "test");
    ASSERT_TRUE(value);
    EXPECT_EQ(value->get<std::string>(), "h\xc3\xa9 \xf0\x9f\x98\x80 \xf0\x9f\x98\x80");
    EXPECT_EQ(dump_json(*value), "\"h\xc3\xa9 \xf0\x9f\x98\x80 \xf0\x9f\x98\x80\"");
}

TEST(Json, NamesTheSourceAndTheByteOfAnError) {
    const auto value = parse_json(R"({"a": 1,})", "config.json");
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().code, ErrorCode::invalid_input);
    EXPECT_NE(value.error().message.find("config.json: not valid JSON at byte 9"), std::string::npos) << value.error().message;
}

TEST(Json, RefusesWhatIsNotOneDocument) {
    for (const char* text :
         {"", " ", "{", "[1", "1 2", "{} x", "nul", "\"open", "\"\\ud800\"", "\"\xff\"", "[1e999]", "NaN", "{'a': 1}"}) {
        EXPECT_FALSE(parse_json(text, "test")) << text;
    }
}

TEST(Json, LimitsTheDepth) {
    EXPECT_TRUE(parse_json(nested(kJsonDepthMax), "test"));
    const auto too_deep = parse_json(nested(kJsonDepthMax + 1), "test");
    ASSERT_FALSE(too_deep);
    EXPECT_EQ(too_deep.error().message, "test: JSON nests more than 256 levels deep");
    EXPECT_FALSE(parse_json(std::string(10'000'000, '['), "test"));
    EXPECT_TRUE(parse_json(nested(3), "test", 3));
    EXPECT_FALSE(parse_json(nested(4), "test", 3));
}

TEST(Json, RefusesAnObjectWithTooManyMembersBeforeParsingIt) {
    std::string text = "{";
    for (int i = 0; i <= kJsonMembersMax; ++i) text += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": [1, 2, {}]";
    const auto too_many = parse_json(text + "}", "test");
    ASSERT_FALSE(too_many);
    EXPECT_EQ(too_many.error().message, "test: a JSON object has more than 32768 members");
    std::string list = "[1";
    for (int i = 0; i < 2 * kJsonMembersMax; ++i) list += ", 1";
    EXPECT_TRUE(parse_json(list + "]", "test")) << "arrays may be long";
}

TEST(Json, BracketsInsideStringsDoNotCount) {
    const auto value = parse_json(R"(["\"[[[[[[[[\\", "]"])", "test", 1);
    ASSERT_TRUE(value);
    EXPECT_EQ((*value)[0].get<std::string>(), "\"[[[[[[[[\\");
}

TEST(Json, WritingReplacesInvalidBytes) {
    const Json value = std::string("a\xff z");
    EXPECT_EQ(dump_json(value), "\"a\xef\xbf\xbd z\"");
}

}  // namespace
}  // namespace espalier
