// Broken, hostile and unsupported tokenizer.json files: one clear error each, never a crash or a hang.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "text/tokenizer_test_data.h"

namespace espalier::text::testing {
namespace {

std::string error_of(std::string_view json) {
    auto tokenizer = Tokenizer::parse(json);
    return tokenizer ? "" : tokenizer.error().message;
}

// The error of the small file after a change.
std::string error_after(const std::function<void(Json&)>& change) {
    Json file = small_file();
    change(file);
    return error_of(file.dump());
}

void expect_error(const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << "found '" << error << "', expected it to hold '" << part << "'";
    EXPECT_TRUE(error.starts_with("tokenizer.json: ")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(TokenizerFile, the_small_file_is_valid) {
    EXPECT_EQ(error_after([](Json&) {}), "");
}

TEST(TokenizerFile, ids) {
    for (const char* id :
         {"-1", "4194304", "2147483648", "1000000000000000000", "18446744073709551615", "-9223372036854775808"}) {
        const Json value = Json::parse(id);
        expect_error(error_after([&](Json& file) { file["model"]["vocab"]["ab"] = value; }), "model.vocab: token \"ab\" has id");
        expect_error(error_after([&](Json& file) {
                         file["added_tokens"] = {{{"id", value}, {"content", "<x>"}}};
                     }),
                     "added_tokens[0].id");
    }
    for (const char* id : {"1.5", "\"7\"", "null", "[]", "{}", "true", "1e3"}) {
        const Json value = Json::parse(id);
        expect_error(error_after([&](Json& file) { file["model"]["vocab"]["ab"] = value; }),
                     "model.vocab: an id is not an integer");
        expect_error(error_after([&](Json& file) {
                         file["added_tokens"] = {{{"id", value}, {"content", "<x>"}}};
                     }),
                     "added_tokens[0].id");
    }
    expect_error(error_after([](Json& file) { file["model"]["vocab"]["ab"] = 257; }), "has id 257, which another token has too");
    std::string twice = small_file().dump();
    twice.replace(twice.find("\"ab\":256"), 8, "\"ab\":256,\"ab\":258");
    expect_error(error_of(twice), "token 'ab' occurs twice");
    expect_error(error_after([](Json& file) { file["model"]["vocab"].erase("a"); }), "no token for byte 0x61");
}

TEST(TokenizerFile, added_tokens) {
    const auto with = [](Json list) { return error_after([&](Json& file) { file["added_tokens"] = list; }); };
    expect_error(with({{{"id", 300}, {"content", "<x>"}}, {{"id", 300}, {"content", "<y>"}}}),
                 "added_tokens[1]: id 300 is used twice");
    expect_error(with({{{"id", 300}, {"content", "<x>"}}, {{"id", 301}, {"content", "<x>"}}}),
                 "added_tokens[1]: '<x>' occurs twice");
    expect_error(with({{{"id", 256}, {"content", "<x>"}}}), "model.vocab says otherwise");
    expect_error(with({{{"id", 300}, {"content", "ab"}}}), "model.vocab says otherwise");
    expect_error(with({{{"id", 300}, {"content", ""}}}), "added_tokens[0].content");
    expect_error(with({{{"id", 300}, {"content", std::string(2000, 'x')}}}), "at most 1024");
    expect_error(with({{{"id", 300}, {"content", "<x>"}, {"special", 1}}}), "added_tokens[0].special");
    expect_error(with(Json::array({7})), "added_tokens[0]: an object is expected");
    expect_error(with("many"), "added_tokens: an array is expected");
    EXPECT_EQ(with({{{"id", 256}, {"content", "ab"}}}), "");
}

TEST(TokenizerFile, merges) {
    const auto with = [](Json list) { return error_after([&](Json& file) { file["model"]["merges"] = list; }); };
    expect_error(with(Json::array({"a q"})), "merge 0 ('a' + 'q') names 'aq'");
    expect_error(with(Json::array({"a b", "zz c"})), "merge 1 ('zz' + 'c') names 'zz'");
    expect_error(with(Json::array({"ab"})), "merge 0 is not two tokens with one space between");
    expect_error(with(Json::array({"a b c"})), "merge 0 is not two tokens");
    expect_error(with(Json::array({Json::array({"a", "b", "c"})})), "more than 2 parts");
    expect_error(with(Json::array({Json::array({"a"})})), "1 parts instead of 2");
    expect_error(with(Json::array({7})), "a merge is neither a string nor a pair of strings");
    expect_error(with(Json::array({Json::array({"a", 7})})), "a merge is neither");
    expect_error(with("a b"), "model.merges: an array is expected");
    expect_error(error_after([](Json& file) { file["model"].erase("merges"); }), "model.merges: an array is expected");
    EXPECT_EQ(with(Json::array()), "");
}

TEST(TokenizerFile, unsupported_parts_are_named) {
    const auto set = [](const char* pointer, Json value) {
        return error_after([&](Json& file) { file[Json::json_pointer(pointer)] = value; });
    };
    expect_error(set("/version", "2.0"), "version: only \"1.0\"");
    expect_error(set("/normalizer", {{"type", "NFKC"}}), "normalizer: only NFC is supported, found {\"type\":\"NFKC\"}");
    expect_error(set("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}}),
                 "Lowercase");
    expect_error(set("/pre_tokenizer", nullptr), "pre_tokenizer: ByteLevel is expected");
    expect_error(set("/pre_tokenizer", {{"type", "Metaspace"}}), "Metaspace");
    expect_error(set("/pre_tokenizer/add_prefix_space", true), "add_prefix_space");
    expect_error(set("/decoder", {{"type", "Metaspace"}}), "decoder: only ByteLevel");
    expect_error(set("/decoder", nullptr), "decoder: only ByteLevel");
    expect_error(set("/post_processor", {{"type", "TemplateProcessing"}}), "post_processor: only ByteLevel");
    expect_error(set("/model/type", "Unigram"), "model.type: only \"BPE\"");
    expect_error(set("/model/dropout", 0.1), "model.dropout");
    expect_error(set("/model/byte_fallback", true), "model.byte_fallback");
    expect_error(set("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix");
    expect_error(set("/model/continuing_subword_prefix", "##"), "model.continuing_subword_prefix");
    expect_error(set("/model/vocab", Json::array()), "model.vocab: an object is expected");
    expect_error(set("/model", 7), "model: an object is expected");
    EXPECT_EQ(set("/normalizer", nullptr), "");
    EXPECT_EQ(set("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}}), "");
    EXPECT_EQ(set("/post_processor", {{"type", "ByteLevel"}}), "");
}

TEST(TokenizerFile, splits) {
    const auto with = [](Json split) {
        const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
        const Json steps = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
        return error_after([&](Json& file) { file["pre_tokenizer"] = steps; });
    };
    const Json good = {{"type", "Split"}, {"pattern", {{"Regex", "x"}}}, {"behavior", "Isolated"}, {"invert", false}};
    EXPECT_EQ(with(good), "");
    const auto changed = [&](const char* name, Json value) {
        Json split = good;
        split[name] = value;
        return with(split);
    };
    expect_error(changed("behavior", "Removed"), "behavior \"Removed\"");
    expect_error(changed("invert", true), "invert");
    expect_error(changed("pattern", {{"String", " "}}), "Split by {\"String\":\" \"}");
    expect_error(changed("pattern", {{"Regex", "("}}), "pre_tokenizer pattern: not a regular expression");
    expect_error(changed("type", "Digits"), "Digits");
    EXPECT_EQ(changed("pattern", {{"Regex", ""}}), "");
    EXPECT_EQ(changed("pattern", {{"Regex", "x*"}}), "");
}

TEST(TokenizerFile, not_json) {
    expect_error(error_of(""), "not valid JSON at byte");
    expect_error(error_of("{\"model\": \xFF}"), "not valid JSON at byte");
    expect_error(error_of("[]"), "a JSON object is expected, found array");
    expect_error(error_of("7"), "a JSON object is expected, found number");
    expect_error(error_of("{\"model\": {\"vocab\": {\"a\": 99999999999999999999999999}}}"), "an id is not an integer");
    expect_error(error_of(repeated("[", 1000000)), "nests more than 32 levels");
    expect_error(error_of(repeated("{\"model\":", 1000000)), "nests more than 32 levels");
    expect_error(error_of("{\"x\": [" + repeated("0,", 2100000) + "0]}"), "more than 2000000 values");
    std::string many = "{";
    for (int i = 0; i < 200000; ++i) many += "\"k" + std::to_string(i) + "\": 0, ";
    expect_error(error_of(many + "\"k\": 0}"), "pre_tokenizer: ByteLevel is expected as the last step, found null");
    const std::string file = small_file().dump();
    expect_error(error_of("{\"model\": {\"vocab\": {}, \"vocab\": {}}}"), "occurs twice");
    expect_error(error_of("{\"model\": {\"merges\": [], \"merges\": []}}"), "occurs twice");
    expect_error(error_of(file + "x"), "not valid JSON");
}

TEST(TokenizerFile, every_truncation_is_an_error) {
    const std::string file = small_file().dump();
    for (size_t n = 0; n < file.size(); ++n) EXPECT_NE(error_of(std::string_view(file).substr(0, n)), "") << n;
}

// Flipped bits either give an error or a tokenizer that works.
TEST(TokenizerFile, flipped_bits_never_crash) {
    std::mt19937 random(11);
    Json json = small_file();
    json["added_tokens"] = {{{"id", 300}, {"content", "<x>"}, {"special", true}}};
    const std::string file = json.dump();
    int n_errors = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string broken = file;
        for (unsigned flips = 1 + random() % 3; flips > 0; --flips)
            broken[random() % broken.size()] ^= static_cast<char>(1 << random() % 8);
        auto tokenizer = Tokenizer::parse(broken);
        n_errors += !tokenizer;
        if (tokenizer) (*tokenizer)->decode((*tokenizer)->encode("abc <x> d\u00e9\xFF"));
    }
    EXPECT_GT(n_errors, 1000);
}

TEST(TokenizerFile, load_names_the_file) {
    auto missing = Tokenizer::load(golden_path("nowhere"));
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().message.find("nowhere"), std::string::npos);
    auto wrong = Tokenizer::load(golden_path("tokenizer/tiny/tokenizer_config.json"));
    ASSERT_FALSE(wrong);
    EXPECT_NE(wrong.error().message.find("tokenizer_config.json: "), std::string::npos);
}

}  // namespace
}  // namespace espalier::text::testing
