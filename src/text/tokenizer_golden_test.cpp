// The golden files of tests/golden/text/tokenizer (see the README there), for the tiny and the real vocabulary.
#include <gtest/gtest.h>

#include "text/pretokenize.h"
#include "text/tokenizer_nfc.h"
#include "text/tokenizer_test_data.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text::testing {
namespace {

using Ids = std::vector<TokenId>;

Ids ids_of(const Json& line, const char* name) {
    return line.at(line.contains(name) ? name : "ids").get<Ids>();
}

void check_encoding(const Tokenizer& tokenizer, const std::string& file) {
    for (const Json& line : golden_lines(file)) {
        SCOPED_TRACE(file + " " + line.at("id").get<std::string>());
        const std::string text = line.at("text").get<std::string>();
        EXPECT_EQ(tokenizer.encode(text), ids_of(line, "ids"));
        EXPECT_EQ(tokenizer.encode(text, SpecialTokens::none), ids_of(line, "ids_plain"));
        EXPECT_EQ(tokenizer.encode(text, SpecialTokens::non_control), ids_of(line, "ids_control_as_text"));
        const std::string decoded = line.at("decoded").get<std::string>();
        EXPECT_EQ(tokenizer.decode(ids_of(line, "ids")), decoded);
        EXPECT_EQ(tokenizer.decode(ids_of(line, "ids"), SkipSpecial::yes), line.value("decoded_skip_special", decoded));
    }
}

void check_decoding(const Tokenizer& tokenizer, const std::string& file) {
    DecodeStream stream(tokenizer);  // one stream for all lines: flush must leave it fresh
    for (const Json& line : golden_lines(file)) {
        SCOPED_TRACE(file + " " + line.at("id").get<std::string>());
        const Ids ids = line.at("ids").get<Ids>();
        std::vector<std::string> pieces;
        std::string all;
        for (const TokenId id : ids) all += pieces.emplace_back(stream.push(id));
        const std::string flush = stream.flush();
        EXPECT_EQ(pieces, line.at("pieces").get<std::vector<std::string>>());
        EXPECT_EQ(flush, line.at("flush").get<std::string>());
        EXPECT_EQ(all + flush, line.at("decoded").get<std::string>());
        EXPECT_EQ(tokenizer.decode(ids), line.at("decoded").get<std::string>());
    }
}

TEST(TokenizerGolden, tiny_encoding) {
    check_encoding(*tiny_tokenizer(), "tokenizer/tiny.jsonl");
}
TEST(TokenizerGolden, tiny_decoding) {
    check_decoding(*tiny_tokenizer(), "tokenizer/tiny-decode.jsonl");
}
TEST(TokenizerGolden, real_encoding) {
    check_encoding(*real_tokenizer(), "tokenizer/tokenizer.jsonl");
}
TEST(TokenizerGolden, real_decoding) {
    check_decoding(*real_tokenizer(), "tokenizer/decode.jsonl");
}

TEST(TokenizerGolden, normal_form_and_pieces) {
    std::ifstream file(golden_path("tokenizer/tiny/tokenizer.json"));
    const Json json = Json::parse(file);
    const std::string pattern = json.at("pre_tokenizer").at("pretokenizers").at(0).at("pattern").at("Regex").get<std::string>();
    auto splitter = Splitter::compile(pattern);
    ASSERT_TRUE(splitter) << splitter.error().message;
    const Nfc nfc;
    SplitScratch scratch;
    for (const Json& line : golden_lines("tokenizer/pretokenize.jsonl")) {
        SCOPED_TRACE(line.at("id").get<std::string>());
        const std::string text = line.at("text").get<std::string>();
        std::string storage;
        const std::string_view normal = nfc.apply(text, storage);
        EXPECT_EQ(normal, line.at("nfc").get<std::string>());
        std::vector<std::string> pieces;
        for (size_t from = 0; from < normal.size();) {
            const size_t end = splitter->piece_end(normal, from, scratch);
            pieces.emplace_back(normal.substr(from, end - from));
            from = end;
        }
        EXPECT_EQ(pieces, line.at("pieces").get<std::vector<std::string>>());
    }
}

TEST(TokenizerGolden, real_vocabulary_facts) {
    const auto tokenizer = real_tokenizer();
    EXPECT_EQ(tokenizer->vocab_size(), 248077);
    EXPECT_EQ(tokenizer->added_tokens().size(), 33u);
    EXPECT_EQ(tokenizer->added_token_id("<|im_end|>"), 248046);
    EXPECT_EQ(tokenizer->added_token_id("<think>"), 248068);
    EXPECT_EQ(tokenizer->added_token_id("hello"), -1);
    EXPECT_TRUE(tokenizer->is_special(248046));
    EXPECT_TRUE(tokenizer->is_added(248068));
    EXPECT_FALSE(tokenizer->is_special(248068));
    EXPECT_FALSE(tokenizer->is_added(9419));
    EXPECT_EQ(tokenizer->token_bytes(9419), "Hello");
    EXPECT_EQ(tokenizer->token_bytes(248068), "<think>");
    EXPECT_EQ(tokenizer->token_bytes(248077), "");
    EXPECT_EQ(tokenizer->token_bytes(-1), "");
}

// Every token's bytes, cut anywhere, stream to the same text as they decode to.
TEST(TokenizerGolden, every_token_streams_as_it_decodes) {
    const auto tokenizer = tiny_tokenizer();
    DecodeStream stream(*tokenizer);
    std::string all;
    Ids ids;
    for (int round = 0; round < 3; ++round) {
        for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) ids.push_back((id * 37 + round) % tokenizer->vocab_size());
    }
    for (const TokenId id : ids) {
        const std::string piece = stream.push(id);
        EXPECT_TRUE(is_valid_utf8(piece));
        all += piece;
    }
    EXPECT_EQ(all + stream.flush(), tokenizer->decode(ids));
}

}  // namespace
}  // namespace espalier::text::testing
