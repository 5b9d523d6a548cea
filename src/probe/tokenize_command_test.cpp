#include "probe/tokenize_command.h"

#include <gtest/gtest.h>

#include <sstream>

#include "text/tokenizer_test_data.h"

namespace espalier::probe {
namespace {

std::string tokenized(const std::string& lines, std::string* error = nullptr) {
    std::istringstream in(lines);
    std::ostringstream out;
    const Status status = run_tokenize(*text::testing::tiny_tokenizer(), in, out);
    if (error != nullptr) *error = status ? "" : status.error().message;
    else EXPECT_TRUE(status);
    return out.str();
}

std::string detokenized(const std::string& lines, std::string* error = nullptr) {
    std::istringstream in(lines);
    std::ostringstream out;
    const Status status = run_detokenize(*text::testing::tiny_tokenizer(), in, out);
    if (error != nullptr) *error = status ? "" : status.error().message;
    else EXPECT_TRUE(status);
    return out.str();
}

TEST(TokenizeCommand, one_reply_per_line) {
    EXPECT_EQ(
        tokenized("{\"text\": \"<|im_end|>\"}\n\n{\"text\": \"<think>\", \"special\": \"non_control\"}\n{\"text\": \"\"}\n"),
        "{\"ids\":[2017]}\n{\"ids\":[2039]}\n{\"ids\":[]}\n");
    EXPECT_NE(tokenized("{\"text\": \"<think>\", \"special\": \"none\"}"), "{\"ids\":[2039]}\n");
}

TEST(TokenizeCommand, a_bad_line_is_named_and_earlier_replies_stay) {
    std::string error;
    EXPECT_EQ(tokenized("{\"text\": \"\"}\n{\"text\": 7}\n{\"text\": \"\"}\n", &error), "{\"ids\":[]}\n");
    EXPECT_EQ(error, "line 2: \"text\" with a string is expected");
    tokenized("nonsense", &error);
    EXPECT_NE(error.find("line 1"), std::string::npos);
    tokenized("[]", &error);
    EXPECT_NE(error.find("object"), std::string::npos);
    tokenized("{\"text\": \"a\", \"special\": \"some\"}", &error);
    EXPECT_NE(error.find("\"some\""), std::string::npos);
}

TEST(TokenizeCommand, detokenize_gives_text_pieces_and_flush) {
    EXPECT_EQ(detokenized("{\"ids\": [2017, 99999, -5, 2039]}"),
              "{\"text\":\"<|im_end|><think>\",\"pieces\":[\"<|im_end|>\",\"\",\"\",\"<think>\"],\"flush\":\"\"}\n");
    EXPECT_EQ(detokenized("{\"ids\": [2017, 2039], \"skip_special\": true}"),
              "{\"text\":\"<think>\",\"pieces\":[\"\",\"<think>\"],\"flush\":\"\"}\n");
}

TEST(TokenizeCommand, detokenize_refuses_what_is_no_id) {
    std::string error;
    for (const char* ids : {"7", "[1.5]", "[\"1\"]", "[2147483648]", "[-2147483649]", "[18446744073709551615]", "[null]"}) {
        EXPECT_EQ(detokenized(std::string("{\"ids\": ") + ids + "}", &error), "");
        EXPECT_NE(error.find("line 1: \"ids\""), std::string::npos) << ids;
    }
}

}  // namespace
}  // namespace espalier::probe
