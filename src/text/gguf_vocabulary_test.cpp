// Tokenizers from GGUF metadata: the same ids as from the tokenizer.json of the same model, and what is refused.
#include "text/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "text/tokenizer_test_data.h"

namespace espalier::text::testing {
namespace {

using ::testing::HasSubstr;

// What a converter writes for a tokenizer.json; owns the strings of the vocabulary.
struct Converted {
    std::vector<std::string> tokens;
    std::vector<std::string> merges;
    GgufVocabulary vocabulary{"gpt2", "qwen35", {}, {}, {}};

    explicit Converted(const Json& source) {
        const Json& model = source.at("model");
        size_t n_ids = 0;
        for (const auto& [name, id] : model.at("vocab").items()) n_ids = std::max(n_ids, id.get<size_t>() + 1);
        for (const Json& added : source.at("added_tokens")) n_ids = std::max(n_ids, added.at("id").get<size_t>() + 1);
        n_ids += 3;  // rows of the embedding without a token
        for (size_t i = 0; i < n_ids; ++i) tokens.push_back("[PAD" + std::to_string(i) + "]");
        vocabulary.types.assign(n_ids, 5);
        for (const auto& [name, id] : model.at("vocab").items()) {
            tokens[id.get<size_t>()] = name;
            vocabulary.types[id.get<size_t>()] = 1;
        }
        for (const Json& added : source.at("added_tokens")) {
            tokens[added.at("id").get<size_t>()] = added.at("content");
            vocabulary.types[added.at("id").get<size_t>()] = added.at("special").get<bool>() ? 3 : 4;
        }
        for (const Json& merge : model.at("merges")) {
            merges.push_back(merge.is_string() ? merge.get<std::string>()
                                               : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
        }
        vocabulary.tokens.assign(tokens.begin(), tokens.end());
        vocabulary.merges.assign(merges.begin(), merges.end());
    }
    Converted(const Converted&) = delete;
    Converted& operator=(const Converted&) = delete;
};

Json tiny_file() {
    const auto text = read_file(golden_path("tokenizer/tiny/tokenizer.json"), size_t{16} << 20);
    CHECK(text.has_value(), "golden file");
    auto json = parse_json(*text, "tokenizer.json");
    CHECK(json.has_value(), "golden file is JSON");
    return *std::move(json);
}

TEST(GgufVocabulary, TheGoldenIds) {
    const Converted converted(tiny_file());
    auto file = tokenizer_file_of(converted.vocabulary);
    ASSERT_TRUE(file) << file.error().message;
    const auto tokenizer = valid(Tokenizer::build(*std::move(file)));
    for (const Json& line : golden_lines("tokenizer/tiny.jsonl")) {
        SCOPED_TRACE(line.at("id").get<std::string>());
        const auto ids = [&](const char* name) {
            return line.at(line.contains(name) ? name : "ids").get<std::vector<TokenId>>();
        };
        const std::string text = line.at("text").get<std::string>();
        EXPECT_EQ(tokenizer->encode(text), ids("ids"));
        EXPECT_EQ(tokenizer->encode(text, SpecialTokens::none), ids("ids_plain"));
        EXPECT_EQ(tokenizer->encode(text, SpecialTokens::non_control), ids("ids_control_as_text"));
        EXPECT_EQ(tokenizer->decode(ids("ids")), line.at("decoded").get<std::string>());
    }
    EXPECT_EQ(tokenizer->vocab_size(), tiny_tokenizer()->vocab_size());
    EXPECT_EQ(tokenizer->added_tokens().size(), tiny_tokenizer()->added_tokens().size());
}

TEST(GgufVocabulary, TheOlderPatternSplitsBeforeCombiningMarks) {
    Converted converted(small_file());
    const std::string text = "a\u0323b";  // no composed form of this exists with b; a and the mark compose
    converted.vocabulary.pre = "qwen2";
    const auto older = tokenizer_file_of(converted.vocabulary);
    converted.vocabulary.pre = "qwen35";
    const auto newer = tokenizer_file_of(converted.vocabulary);
    ASSERT_TRUE(older && newer);
    EXPECT_EQ(older->patterns.size(), 1u);
    EXPECT_NE(older->patterns, newer->patterns);
    EXPECT_EQ(older->normalizer, Normalizer::nfc);
    const auto tokenizer = valid(Tokenizer::build(*older));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("abc " + text)), "abc \u1ea1b");
    EXPECT_EQ(tokenizer->encode("abc"), (std::vector<TokenId>{257}));
}

TEST(GgufVocabulary, WhatIsRefused) {
    const auto error_with = [](const auto& change) {
        Converted converted(small_file());
        change(converted.vocabulary);
        const auto file = tokenizer_file_of(converted.vocabulary);
        return file ? "none" : file.error().message;
    };
    EXPECT_EQ(error_with([](GgufVocabulary&) {}), "none");
    EXPECT_THAT(error_with([](GgufVocabulary& v) { v.model = "llama"; }),
                HasSubstr("tokenizer.ggml.model is 'llama', only 'gpt2'"));
    EXPECT_THAT(error_with([](GgufVocabulary& v) { v.pre = "x\n"; }),
                HasSubstr("tokenizer.ggml.pre is 'x\\x0a', supported are qwen2"));
    EXPECT_THAT(error_with([](GgufVocabulary& v) { v.types.pop_back(); }),
                HasSubstr("261 entries, tokenizer.ggml.token_type 260"));
    EXPECT_THAT(error_with([](GgufVocabulary& v) { v.types[3] = 2; }), HasSubstr("tokenizer.ggml.token_type of token 3"));
    EXPECT_THAT(error_with([](GgufVocabulary& v) {
                    v.types[3] = 4;
                    v.tokens[3] = "";
                }),
                HasSubstr("added token 3 has 0 bytes"));
    for (const char* merge : {"ab", "a b c", ""}) {
        EXPECT_THAT(error_with([&](GgufVocabulary& v) { v.merges[1] = merge; }),
                    HasSubstr("tokenizer.ggml.merges: entry 1 is '"));
    }
}

}  // namespace
}  // namespace espalier::text::testing
