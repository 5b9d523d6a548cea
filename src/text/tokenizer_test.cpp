#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "text/tokenizer_nfc.h"
#include "text/tokenizer_test_data.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text::testing {
namespace {

using Ids = std::vector<TokenId>;

Json added(TokenId id, const std::string& content, Json flags = Json::object()) {
    Json entry = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                  {"rstrip", false}, {"normalized", false}, {"special", false}};
    entry.update(flags);
    return entry;
}

std::shared_ptr<const Tokenizer> with_added(std::initializer_list<Json> tokens) {
    Json file = small_file();
    for (const Json& token : tokens) file["added_tokens"].push_back(token);
    return valid(Tokenizer::parse(file.dump()));
}

Ids bytes(std::string_view text) {
    Ids ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
}

Ids joined(std::initializer_list<Ids> parts) {
    Ids ids;
    for (const Ids& part : parts) ids.insert(ids.end(), part.begin(), part.end());
    return ids;
}

TEST(AddedTokens, the_longest_at_the_leftmost_place_wins) {
    const auto tokenizer = with_added({added(300, "<a>"), added(301, "<a><b>"), added(302, "<b>")});
    EXPECT_EQ(tokenizer->encode("<a><b><b><a>"), (Ids{301, 302, 300}));
    EXPECT_EQ(tokenizer->encode("x<a"), bytes("x<a"));
    EXPECT_EQ(tokenizer->vocab_size(), 303);
}

TEST(AddedTokens, modes) {
    const auto tokenizer =
        with_added({added(300, "<s>", {{"special", true}}), added(301, "<t>"), added(302, "<s<t>>", {{"special", true}})});
    EXPECT_EQ(tokenizer->encode("<s><t>"), (Ids{300, 301}));
    EXPECT_EQ(tokenizer->encode("<s><t>", SpecialTokens::non_control), joined({bytes("<s>"), {301}}));
    EXPECT_EQ(tokenizer->encode("<s><t>", SpecialTokens::none), bytes("<s><t>"));
    // A control token's text is skipped as a whole, as in the reference.
    EXPECT_EQ(tokenizer->encode("<s<t>>", SpecialTokens::non_control), bytes("<s<t>>"));
    EXPECT_EQ(tokenizer->decode({300, 301, 'x', 302}, SkipSpecial::yes), "<t>x");
}

TEST(AddedTokens, strip_flags_take_the_space_beside_them) {
    const auto tokenizer = with_added({added(300, "<l>", {{"lstrip", true}}), added(301, "<r>", {{"rstrip", true}})});
    EXPECT_EQ(tokenizer->encode("x \u3000<l> y"), joined({bytes("x"), {300}, bytes(" y")}));
    EXPECT_EQ(tokenizer->encode("x <r> \t\u00a0y"), joined({bytes("x "), {301}, bytes("y")}));
    EXPECT_EQ(tokenizer->encode("<r>  <l>"), (Ids{301, 300}));
    EXPECT_EQ(tokenizer->encode("  <l>"), Ids{300});
}

TEST(AddedTokens, single_word_needs_a_boundary_on_both_sides) {
    const auto tokenizer = with_added({added(300, "cat", {{"single_word", true}})});
    EXPECT_EQ(tokenizer->encode("cat"), Ids{300});
    EXPECT_EQ(tokenizer->encode("(cat)"), joined({bytes("("), {300}, bytes(")")}));
    EXPECT_EQ(tokenizer->encode("cats"), bytes("cats"));
    EXPECT_EQ(tokenizer->encode("_cat"), bytes("_cat"));
    EXPECT_EQ(tokenizer->encode("\u00e9cat"), bytes("\u00e9cat"));
    EXPECT_EQ(tokenizer->encode("cat\u0301"), bytes("cat\u0301"));
}

TEST(AddedTokens, normalised_tokens_match_normalised_text) {
    const auto tokenizer = with_added({added(300, "e\u0301", {{"normalized", true}}), added(301, "o\u0301")});
    EXPECT_EQ(tokenizer->encode("\u00e9"), Ids{300});
    EXPECT_EQ(tokenizer->encode("e\u0301"), Ids{300});
    EXPECT_EQ(tokenizer->encode("o\u0301"), Ids{301});
    EXPECT_EQ(tokenizer->encode("\u00f3"), bytes("\u00f3"));
}

TEST(Tokenizer, invalid_utf8_becomes_replacement_characters) {
    const auto tokenizer = with_added({});
    EXPECT_EQ(tokenizer->encode("a\xFFz"), bytes("a\uFFFDz"));
    EXPECT_EQ(tokenizer->encode("\xE4\xBD"), bytes("\uFFFD"));
    EXPECT_EQ(tokenizer->encode(std::string_view("a\0b", 3)), (Ids{'a', 0, 'b'}));
}

TEST(Tokenizer, unknown_ids_give_no_text) {
    const auto tokenizer = with_added({added(400, "<x>")});
    EXPECT_EQ(tokenizer->decode({-1, 'a', 300, 400, 401, INT32_MAX, INT32_MIN}), "a<x>");
    EXPECT_EQ(tokenizer->token_bytes(300), "");
    EXPECT_FALSE(tokenizer->is_added(300));
    EXPECT_EQ(tokenizer->vocab_size(), 401);
}

TEST(Tokenizer, merges_may_be_lines_or_pairs_and_stand_before_the_vocabulary) {
    Json file = small_file();
    EXPECT_EQ(valid(Tokenizer::parse(file.dump()))->encode("abcab"), (Ids{257, 256}));
    file["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"})});
    EXPECT_EQ(valid(Tokenizer::parse(file.dump()))->encode("abcab"), (Ids{257, 256}));
    const Json model = {
        {"type", "BPE"}, {"merges", Json::array({"#version: 0.2", "a b", "ab c"})}, {"vocab", file["model"]["vocab"]}};
    file["model"] = model;
    EXPECT_EQ(valid(Tokenizer::parse(file.dump()))->encode("abcab"), (Ids{257, 256}));
}

TEST(Tokenizer, splits_apply_one_after_the_other) {
    Json file = small_file();
    const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const auto split = [](const char* pattern) {
        return Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    };
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split("x"), split("bc"), byte_level}}};
    EXPECT_EQ(valid(Tokenizer::parse(file.dump()))->encode("abxabcxab"), (Ids{256, 'x', 'a', 'b', 'c', 'x', 256}));
    file["pre_tokenizer"] = byte_level;
    EXPECT_EQ(valid(Tokenizer::parse(file.dump()))->encode("abcx ab"), (Ids{257, 'x', ' ', 256}));
}

TEST(Tokenizer, one_tokenizer_serves_many_threads) {
    const auto tokenizer = tiny_tokenizer();
    const std::string text = repeated("def f(x): return na\u0131ve + 'stra\u00dfe' <think> e\u0301 \u4f60\u597d\n", 50);
    const Ids expected = tokenizer->encode(text);
    std::atomic<int> n_wrong = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < 10; ++round) n_wrong += tokenizer->encode(text) != expected;
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(n_wrong, 0);
}

// The bounds are far above what is measured (tokenizer_bench): they catch quadratic behaviour, not slow machines.
TEST(Tokenizer, a_megabyte_without_a_cut_does_not_take_quadratic_time) {
    const auto tokenizer = tiny_tokenizer();
    const std::vector<std::string> texts = {std::string(1 << 20, 'a'), repeated("the", 1 << 18), std::string(1 << 20, ' '),
                                            repeated("\u0301\u0316", 1 << 18), repeated("<|im_", 1 << 18)};
    for (const std::string& text : texts) {
        const auto start = std::chrono::steady_clock::now();
        EXPECT_FALSE(tokenizer->encode(text).empty());
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    }
}

TEST(DecodeStream, skips_special_tokens_without_breaking_a_character) {
    const auto tokenizer = with_added({added(300, "<s>", {{"special", true}}), added(301, "<t>")});
    DecodeStream stream(*tokenizer, SkipSpecial::yes);
    EXPECT_EQ(stream.push(0xC3), "");
    EXPECT_EQ(stream.push(300), "");
    EXPECT_EQ(stream.push(0xA9), "\u00e9");
    EXPECT_EQ(stream.push(0xC3), "");
    EXPECT_EQ(stream.push(301), "\uFFFD<t>");
    EXPECT_EQ(stream.push(0xF0), "");
    EXPECT_EQ(stream.flush(), "\uFFFD");
    EXPECT_EQ(stream.flush(), "");
    EXPECT_EQ(stream.push('a'), "a");
}

TEST(Utf8, every_scalar_value_survives_and_broken_parts_are_maximal) {
    for (char32_t c = 0; c < 0x110000; ++c) {
        if (c == 0xD800) c = 0xE000;
        std::string text;
        append_utf8(text, c);
        size_t n_bytes = 0;
        ASSERT_TRUE(is_valid_utf8(text)) << static_cast<unsigned>(c);
        ASSERT_EQ(decode_utf8(text.data(), n_bytes), c);
        ASSERT_EQ(n_bytes, text.size());
    }
    EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98x"), "\uFFFDx");
    EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
    EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xF5\xF4\x90\xE0\x9F"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Nfc, settled_text_is_returned_as_it_is) {
    const Nfc nfc;
    std::string storage = "untouched";
    const std::string text = "na\u00efve \u4f60\u597d \ud55c\uad6d\uc5b4 \U0001F600";
    EXPECT_EQ(nfc.apply(text, storage).data(), text.data());
    EXPECT_EQ(storage, "untouched");
}

TEST(Nfc, compositions_orderings_and_exclusions) {
    const Nfc nfc;
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"e\u0301", "\u00e9"},
        {"\u0301", "\u0301"},
        {"xe\u0301\u0316y", "x\u00e9\u0316y"},  // the lower class moves to the front, then both sides compose or stay
        {"a\u0301\u0316", "\u00e1\u0316"},
        {"q\u0307\u0323", "q\u0323\u0307"},
        {"\u1100\u1161\u11a8", "\uac01"},
        {"\uac00\u11a8", "\uac01"},
        {"\u212b", "\u00c5"},
        {"\u0958", "\u0915\u093c"},  // excluded from composition
        {"\u09c7\u09be", "\u09cb"},  // a starter that joins the one before it
        {"\U0002f800", "\u4e3d"},
        {"\ufb01", "\ufb01"},  // compatibility only
    };
    for (const auto& [text, normal] : cases) {
        std::string storage;
        EXPECT_EQ(nfc.apply(text, storage), normal) << text;
        EXPECT_EQ(std::string(nfc.apply("<" + text + ">", storage)), "<" + normal + ">") << text;
    }
}

}  // namespace
}  // namespace espalier::text::testing
