#include "text/output_parser_json.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/json_escape.h"

namespace espalier::text {
namespace {

struct Transcoded {
    std::string json;
    bool is_python = false;
    bool is_broken = false;
    size_t n_taken = 0;
};

Transcoded transcode(std::string_view text) {
    JsonTranscoder transcoder;
    Transcoded out;
    while (out.n_taken < text.size() && transcoder.feed(text[out.n_taken], out.json)) ++out.n_taken;
    transcoder.close(out.json);
    out.is_python = transcoder.is_python();
    out.is_broken = transcoder.is_broken();
    return out;
}

TEST(JsonTranscoder, JsonIsOnlyRespaced) {
    const std::pair<const char*, const char*> pairs[] = {
        {"{}", "{}"},
        {" [ ] ", "[]"},
        {"{\"a\":1,\"b\" : [ true ,null,-1.50e+3]}", "{\"a\": 1, \"b\": [true, null, -1.50e+3]}"},
        {"[\"\\u00e9\\n\\\"\\/\", \"\xC3\xA9\"]", "[\"\\u00e9\\n\\\"\\/\", \"\xC3\xA9\"]"},
        {"{\"a\": {\"b\": {}}, \"c\": []}", "{\"a\": {\"b\": {}}, \"c\": []}"},
        {"[123456789012345678901234567890]", "[123456789012345678901234567890]"},
        {"[\"a\"\n,\n\"b\" ]", "[\"a\", \"b\"]"},
    };
    for (const auto& [text, expected] : pairs) {
        const Transcoded out = transcode(text);
        EXPECT_EQ(out.json, expected);
        EXPECT_FALSE(out.is_broken) << text;
        EXPECT_FALSE(out.is_python) << text;
    }
}

TEST(JsonTranscoder, PythonIsTranslated) {
    const std::pair<const char*, const char*> pairs[] = {
        {"{'a': True, 'b': None}", "{\"a\": true, \"b\": null}"},
        {"[1, 2,]", "[1, 2]"},
        {"{\"a\": (1, False),}", "{\"a\": [1, false]}"},
        {"['it\\'s \"so\"', '\\x41']", "[\"it's \\\"so\\\"\", \"\\u0041\"]"},
    };
    for (const auto& [text, expected] : pairs) {
        const Transcoded out = transcode(text);
        EXPECT_EQ(out.json, expected);
        EXPECT_TRUE(out.is_python) << text;
        EXPECT_FALSE(out.is_broken) << text;
    }
}

TEST(JsonTranscoder, BrokenIsRepairedToJson) {
    const std::pair<const char*, const char*> pairs[] = {
        {"{\"a\": \"say \"hi\" now\"}", "{\"a\": \"say \\\"hi\\\" now\"}"},
        {"{\"a\": \"x\ny\"}", "{\"a\": \"x\\ny\"}"},
        {"{\"a\": \"\\d\"}", "{\"a\": \"\\\\d\"}"},
        {"{\"a\": \"\\u12x\"}", "{\"a\": \"\\\\u12x\"}"},
        {"{a: b c, d: 01}", "{\"a\": \"b c\", \"d\": \"01\"}"},
        {"{\"a\": [1, {\"b\": \"c", "{\"a\": [1, {\"b\": \"c\"}]}"},
        {"{\"a\": 1, \"b", "{\"a\": 1}"},
        {"{\"a\": 1, \"b\":", "{\"a\": 1}"},
        {"{\"a\": [1}", "{\"a\": [1]}"},
        {"{\"a\": 1]}", "{\"a\": 1}"},
        {"[1,,2]", "[1, 2]"},
        {"{\"a\" \"b\": 1}", "{\"a\\\" \\\"b\": 1}"},
        {"[NaN]", "[\"NaN\"]"},
        {"[\"a\\", "[\"a\\\\\"]"},
    };
    for (const auto& [text, expected] : pairs) {
        const Transcoded out = transcode(text);
        EXPECT_EQ(out.json, expected);
        EXPECT_TRUE(out.is_broken) << text;
        EXPECT_TRUE(Json::accept(out.json)) << out.json;
    }
}

TEST(JsonTranscoder, CloseAtAnyPointLeavesJson) {
    const std::string text = "{\"a\": [1, \"x\\u00e9\\n\", {\"b\": true, \"c\": null}], \"d\": -1.5e3, \"e\": {\"f\": []}}";
    for (size_t n = 1; n <= text.size(); ++n) {
        const Transcoded out = transcode(text.substr(0, n));
        EXPECT_TRUE(Json::accept(out.json)) << text.substr(0, n) << " -> " << out.json;
        EXPECT_EQ(out.is_broken, n < text.size()) << n;
    }
}

TEST(JsonTranscoder, StopsAfterTheValue) {
    EXPECT_EQ(transcode("{} x").n_taken, 2u);
    EXPECT_EQ(transcode("\"a\" , 1").json, "\"a\"");
    EXPECT_EQ(transcode("\"a\" , 1").n_taken, 4u);
    EXPECT_EQ(transcode("12}").json, "12");
    EXPECT_EQ(transcode(",").json, "");
    EXPECT_TRUE(transcode("").is_broken);
}

TEST(JsonTranscoder, StringsStreamAndScalarsWait) {
    JsonTranscoder transcoder;
    std::string out;
    const auto feed = [&](std::string_view text) {
        out.clear();
        for (const char c : text) transcoder.feed(c, out);
        return out;
    };
    EXPECT_EQ(feed("{\"key\": "), "{");
    EXPECT_EQ(feed("\"ab"), "\"key\": \"ab");
    EXPECT_TRUE(transcoder.in_string());
    EXPECT_EQ(feed("c\\"), "c");
    EXPECT_EQ(feed("n\""), "\\n");
    EXPECT_EQ(feed(", \"n\": 12"), "\"");
    EXPECT_EQ(feed("3"), "");
    EXPECT_EQ(feed("}"), ", \"n\": 123}");
    EXPECT_TRUE(transcoder.is_done());
}

TEST(JsonEscape, ControlCharactersAndQuotes) {
    std::string out;
    append_json_escaped(out, std::string_view("a\"\\\n\r\t\b\f\x01\x1f\x7f\0/\xC3\xA9", 15));
    EXPECT_EQ(out, "a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\\u0000/\xC3\xA9");
}

TEST(JsonNumber, Grammar) {
    for (const char* good : {"0", "-0", "12", "0.5", "-1.50", "1e5", "1E+05", "1.5e-3"})
        EXPECT_TRUE(is_json_number(good)) << good;
    for (const char* bad : {"", "-", "01", "+1", ".5", "5.", "1e", "1e+", "0x1", "1 ", "NaN"})
        EXPECT_FALSE(is_json_number(bad)) << bad;
}

}  // namespace
}  // namespace espalier::text
