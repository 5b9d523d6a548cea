#include "text/pretokenize.h"

#include <gtest/gtest.h>

#include "text/pretokenize_pattern.h"
#include "text/tokenizer_test_data.h"

namespace espalier::text::testing {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(const std::string& pattern, const std::string& text) {
    auto splitter = Splitter::compile(pattern);
    EXPECT_TRUE(splitter) << splitter.error().message;
    if (!splitter) return {};
    SplitScratch scratch;
    Pieces pieces;
    for (size_t from = 0; from < text.size();) {
        const size_t end = splitter->piece_end(text, from, scratch);
        EXPECT_GT(end, from);
        pieces.push_back(text.substr(from, end - from));
        from = end;
    }
    return pieces;
}

std::string error_of(const std::string& pattern) {
    auto splitter = Splitter::compile(pattern);
    return splitter ? "" : splitter.error().message;
}

TEST(Splitter, matches_and_gaps_are_pieces) {
    EXPECT_EQ(pieces_of("b+", "abbcb"), (Pieces{"a", "bb", "c", "b"}));
    EXPECT_EQ(pieces_of("z", "abc"), (Pieces{"abc"}));
    EXPECT_EQ(pieces_of("\\p{N}{1,3}", "12345x"), (Pieces{"123", "45", "x"}));
}

TEST(Splitter, an_empty_match_only_cuts) {
    EXPECT_EQ(pieces_of("x*", "axxb"), (Pieces{"a", "xx", "b"}));
    EXPECT_EQ(pieces_of("", "\u00e9ab"), (Pieces{"\u00e9", "a", "b"}));
    EXPECT_EQ(pieces_of("(?=b)", "aabab"), (Pieces{"aa", "ba", "b"}));
}

TEST(Splitter, byte_level_pattern) {
    EXPECT_EQ(pieces_of(std::string(kByteLevelPattern), "I'll pay  12 euros!\n"),
              (Pieces{"I", "'ll", " pay", " ", " 12", " euros", "!", "\n"}));
}

// U+180E is no white space since Unicode 6.3, but PCRE2's own \s matches it; U+0085 is white space.
TEST(Splitter, white_space_is_unicode_white_space) {
    EXPECT_EQ(pieces_of("\\s+", "a\u0085\u2003\u3000b"), (Pieces{"a", "\u0085\u2003\u3000", "b"}));
    EXPECT_EQ(pieces_of("\\s", "a\u180eb"), (Pieces{"a\u180eb"}));
    EXPECT_EQ(pieces_of("[^\\s]+", "a\u180eb \u00a0c"), (Pieces{"a\u180eb", " \u00a0", "c"}));
    EXPECT_EQ(pieces_of("\\S+", "a\u180eb c"), (Pieces{"a\u180eb", " ", "c"}));
}

TEST(Splitter, word_characters_and_scripts_are_those_of_the_reference) {
    EXPECT_EQ(pieces_of("\\w+", "na\u0303o\u203fx-y"), (Pieces{"na\u0303o\u203fx", "-", "y"}));
    EXPECT_EQ(pieces_of("\\W", "a b"), (Pieces{"a", " ", "b"}));
    // U+30FB has script Common; as a script extension it would count as Katakana.
    EXPECT_EQ(pieces_of("\\p{Katakana}+", "\u30ab\u30fb\u30ab"), (Pieces{"\u30ab", "\u30fb", "\u30ab"}));
    EXPECT_EQ(pieces_of("\\p{^Lu}+", "ABcd"), (Pieces{"AB", "cd"}));
    EXPECT_EQ(pieces_of("\\pL+", "ab12"), (Pieces{"ab", "12"}));
}

TEST(Splitter, constructs_that_engines_read_differently_are_named) {
    EXPECT_NE(error_of("^a").find("anchor '^' at byte 0"), std::string::npos);
    EXPECT_NE(error_of("ab$").find("anchor '$' at byte 2"), std::string::npos);
    EXPECT_NE(error_of("\\h").find("escape '\\h'"), std::string::npos);
    EXPECT_NE(error_of("a\\b").find("escape '\\b'"), std::string::npos);
    EXPECT_NE(error_of("(a)\\1").find("escape '\\1'"), std::string::npos);
    EXPECT_NE(error_of("[a[b]]").find("'[' inside a class"), std::string::npos);
    EXPECT_NE(error_of("[a&&b]").find("'&&'"), std::string::npos);
    EXPECT_NE(error_of("[]a]").find("']'"), std::string::npos);
    EXPECT_NE(error_of("[\\S]").find("\\S"), std::string::npos);
    EXPECT_NE(error_of("(*LIMIT_MATCH=1)a").find("(*"), std::string::npos);
    EXPECT_NE(error_of("(?m:.)").find("(?m"), std::string::npos);
    EXPECT_NE(error_of("(?R)").find("(?R"), std::string::npos);
    EXPECT_NE(error_of("\\").find("at the end"), std::string::npos);
    EXPECT_NE(error_of("\\p").find("at the end"), std::string::npos);
    EXPECT_NE(error_of("\\p{L").find("without '}'"), std::string::npos);
}

TEST(Splitter, what_is_no_regular_expression_is_an_error) {
    for (const char* pattern : {"(", "a{2,1}", "[a", "*a", "\\p{Klingon}", "(?<=a+)b", "\\x{110000}"}) {
        EXPECT_NE(error_of(pattern).find("not a regular expression"), std::string::npos) << pattern;
    }
    EXPECT_NE(error_of("(((((a{1,9999}){1,9999}){1,9999}){1,9999}){1,9999})"), "");
    EXPECT_NE(error_of(std::string(20000, '(')), "");
    EXPECT_NE(error_of(std::string(300, '(') + std::string(300, ')')), "");
}

// Exponential backtracking is stopped and the rest of the text is one piece.
TEST(Splitter, a_pattern_that_backtracks_without_end_is_stopped) {
    EXPECT_EQ(pieces_of("(?:a|aa)+b", std::string(200, 'a')), (Pieces{std::string(200, 'a')}));
}

TEST(Splitter, long_runs_stay_linear) {
    const std::string pattern = golden_lines("tokenizer/tiny/tokenizer.json")
                                    .at(0)
                                    .at("pre_tokenizer")
                                    .at("pretokenizers")
                                    .at(0)
                                    .at("pattern")
                                    .at("Regex")
                                    .get<std::string>();
    const std::string spaces(1 << 20, ' ');
    EXPECT_EQ(pieces_of(pattern, spaces), (Pieces{spaces}));
    EXPECT_EQ(pieces_of(pattern, spaces + "a"), (Pieces{spaces.substr(1), " a"}));
    EXPECT_EQ(pieces_of(pattern, spaces + "\n"), (Pieces{spaces + "\n"}));
    EXPECT_EQ(pieces_of(pattern, std::string(1 << 20, '=')), (Pieces{std::string(1 << 20, '=')}));
}

// A group needs JIT stack for every repetition: more than the default, less than the limit.
TEST(Splitter, a_repeated_group_uses_the_larger_stack) {
    const std::string text = repeated("ab", 20000);
    EXPECT_EQ(pieces_of("(?:a|b)+", text), (Pieces{text}));
}

}  // namespace
}  // namespace espalier::text::testing
