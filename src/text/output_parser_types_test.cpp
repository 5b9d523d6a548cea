#include "text/output_parser_types.h"

#include <gtest/gtest.h>

#include "text/output_parser_tools.h"

namespace espalier::text {
namespace {

Value value_of(const std::string& json) {
    const auto value = parse_json_value(json, "schema");
    EXPECT_TRUE(value) << json;
    return value ? *value : Value();
}

uint8_t bits_of(const std::string& schema, const std::string& root = "{}") {
    return schema_types(value_of(schema), value_of(root)).bits();
}

TEST(SchemaTypes, WhatASchemaAllows) {
    using T = TypeSet;
    EXPECT_EQ(bits_of(R"({"type": "string"})"), T::string);
    EXPECT_EQ(bits_of(R"({"type": ["integer", "null"]})"), T::integer | T::null);
    EXPECT_EQ(bits_of(R"({"anyOf": [{"type": "object"}, {"type": "null"}]})"), T::object | T::null);
    EXPECT_EQ(bits_of(R"({"oneOf": [{"type": "string"}, {"enum": [1, null, true, 1.5]}]})"),
              T::string | T::integer | T::null | T::boolean | T::number);
    EXPECT_EQ(bits_of(R"({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}, {"minimum": 1}]})"), T::integer);
    EXPECT_EQ(bits_of(R"({"const": "a"})"), T::string);
    EXPECT_EQ(bits_of(R"({"properties": {}})"), T::object);
    EXPECT_EQ(bits_of(R"({"items": {}})"), T::array);
    EXPECT_EQ(bits_of(R"({"type": "integer", "nullable": true})"), T::integer | T::null);
    EXPECT_EQ(bits_of(R"({"type": "dict"})"), T::object);
    for (const char* untyped :
         {"{}", "true", R"({"type": "anything"})", R"({"anyOf": [{"type": "string"}, {}]})", R"({"type": [["string"]]})"}) {
        EXPECT_EQ(bits_of(untyped), 0) << untyped;
    }
}

TEST(SchemaTypes, ReferencesAreFollowed) {
    const std::string root =
        R"({"$defs": {"A": {"$ref": "#/$defs/B~1C"}, "B/C": {"type": "array"}, "loop": {"$ref": "#/$defs/loop"}},
                                 "definitions": {"D": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}})";
    EXPECT_EQ(bits_of(R"({"$ref": "#/$defs/A"})", root), TypeSet::array);
    EXPECT_EQ(bits_of(R"({"$ref": "#/definitions/D"})", root), TypeSet::array | TypeSet::null);
    for (const char* lost : {"#/$defs/loop", "#/$defs/none", "other.json", "#", "", "#x"}) {
        EXPECT_EQ(bits_of(std::string(R"({"$ref": ")") + lost + "\"}", root), 0) << lost;
    }
    // 2^32 paths through the references, but bounded work.
    std::string defs = R"({"$defs": {"d32": {"type": "string"})";
    for (int i = 0; i < 32; ++i) {
        const std::string next = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}";
        defs += R"(, "d)" + std::to_string(i) + R"(": {"anyOf": [)" + next + ", " + next + "]}";
    }
    EXPECT_EQ(bits_of(R"({"$ref": "#/$defs/d0"})", defs + "}}"), 0);
}

void expect_typed(std::string_view text, uint8_t bits, std::string_view json, std::string_view repair = "") {
    const TypedValue typed = type_value(text, TypeSet(bits));
    EXPECT_EQ(typed.json, json) << text;
    EXPECT_EQ(typed.repair == nullptr ? "" : std::string_view(typed.repair), repair) << text;
}

TEST(TypeValue, Integers) {
    expect_typed("42", TypeSet::integer, "42");
    expect_typed(" -7\n", TypeSet::integer, "-7");
    expect_typed("9007199254740993", TypeSet::integer, "9007199254740993");
    expect_typed("007", TypeSet::integer, "7", "number_spelling");
    expect_typed("+5", TypeSet::integer, "5", "number_spelling");
    expect_typed("-0", TypeSet::integer, "0", "number_spelling");
    expect_typed("5.0", TypeSet::integer, "5", "number_spelling");
    expect_typed("5.", TypeSet::integer, "5", "number_spelling");
    expect_typed("1.25e2", TypeSet::integer, "125", "number_spelling");
    expect_typed("1200e-2", TypeSet::integer, "12", "number_spelling");
    for (const char* text : {"5.5", "1e-1", "1e999999999999", "0x10", "1_000", "1,000", "", "-", "e5", "2026-01-15"}) {
        expect_typed(text, TypeSet::integer, "\"" + std::string(text) + "\"", "value_not_of_type");
    }
}

TEST(TypeValue, Numbers) {
    expect_typed("-1.5e-3", TypeSet::number, "-1.5e-3");
    expect_typed("5", TypeSet::number, "5");
    expect_typed(".5", TypeSet::number, "0.5", "number_spelling");
    expect_typed("-01.50", TypeSet::number, "-1.50", "number_spelling");
    expect_typed("NaN", TypeSet::number, "\"NaN\"", "value_not_of_type");
}

TEST(TypeValue, WordsAndStructures) {
    expect_typed("FALSE", TypeSet::boolean, "false", "python_literal");
    expect_typed("1", TypeSet::boolean, "\"1\"", "value_not_of_type");
    expect_typed("None", TypeSet::integer | TypeSet::null, "null", "python_literal");
    expect_typed("null", TypeSet::integer, "\"null\"", "value_not_of_type");
    expect_typed("{\"a\":1}", TypeSet::object | TypeSet::null, "{\"a\": 1}");
    expect_typed("[1]", TypeSet::object, "\"[1]\"", "value_not_of_type");
    expect_typed("{'a': (True,)}", TypeSet::object, "{\"a\": [true]}", "python_literal");
    expect_typed("\"{\\\"a\\\": 1}\"", TypeSet::object, "{\"a\": 1}", "double_encoded_value");
    expect_typed("\"5\"", TypeSet::integer, "5", "double_encoded_value");
    expect_typed("\"five\"", TypeSet::integer, "\"\\\"five\\\"\"", "value_not_of_type");
    expect_typed("[1] [2]", TypeSet::array, "\"[1] [2]\"", "value_not_of_type");
}

TEST(TypeValue, StringsAndUnionsWithThem) {
    expect_typed("null", TypeSet::string, "\"null\"");
    expect_typed("null", TypeSet::string | TypeSet::null, "null");
    expect_typed("None", TypeSet::string | TypeSet::null, "\"None\"");
    expect_typed("5", TypeSet::string | TypeSet::number, "5");
    expect_typed("5.0", TypeSet::string | TypeSet::number, "5.0");
    expect_typed("1.10", TypeSet::string | TypeSet::number, "\"1.10\"");
    expect_typed("1e5", TypeSet::string | TypeSet::number, "\"1e5\"");
    expect_typed("5.0", TypeSet::string | TypeSet::integer, "\"5.0\"");
    expect_typed("[1]", TypeSet::string | TypeSet::array, "[1]");
    expect_typed("[1] ", TypeSet::string | TypeSet::object, "\"[1] \"");
    expect_typed("123", 0, "\"123\"");
    expect_typed("[1]", 0, "[1]");
    expect_typed("['a']", 0, "\"['a']\"");
}

// A value is streamed as a string from the moment it cannot be anything else; then it must not convert.
TEST(TypeValue, StreamingAgreesWithTyping) {
    const char* const texts[] = {"",   "t",  "true", "truth", "null", "nul",   "nullx", "5", "-5",  "5.5", "5a", "-",
                                 "{}", "[1", "{x",   "a[1]",  "None", "false", "1e5",   "0", "\n1", " 1",  "é",  "[1] x"};
    for (const char* text : texts) {
        for (int bits = 0; bits < 128; ++bits) {
            const TypeSet types(static_cast<uint8_t>(bits));
            bool may = true;
            const std::string_view whole = text;
            for (size_t n = 1; n <= whole.size() && may; ++n) may = may_be_non_string(whole.substr(0, n), n - 1, types);
            if (may) continue;
            EXPECT_EQ(type_value(text, types).json.front(), '"') << text << " " << bits;
        }
    }
}

TEST(DeclaredTools, BothShapesAndMissingParts) {
    const Value list =
        value_of(R"([{"type": "function", "function": {"name": "a", "parameters": {"properties": {"n": {"type": "integer"}}}}},
                                    {"name": "b"}, {"function": {"name": ""}}, {"function": 1}, 5, {}])");
    const DeclaredTools tools(*list.as_list());
    ASSERT_NE(tools.find("a"), nullptr);
    EXPECT_TRUE(tools.find("a")->has_parameter("n"));
    EXPECT_EQ(tools.find("a")->parameter_types("n").bits(), TypeSet::integer);
    EXPECT_TRUE(tools.find("a")->parameter_types("other").is_string_only());
    ASSERT_NE(tools.find("b"), nullptr);
    EXPECT_FALSE(tools.find("b")->has_parameter("n"));
    EXPECT_EQ(tools.find(""), nullptr);
    EXPECT_TRUE(DeclaredTools({}).empty());
}

}  // namespace
}  // namespace espalier::text
