#include "quant/token_sets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/mapped_file.h"
#include "quant/byte_tokenizer.h"
#include "text/chat_template.h"

namespace espalier::quant {
namespace {

TextLimits limits(int64_t calibration, int64_t heldout) {
    return {calibration, heldout, 1000};
}

TokenSet read(std::string_view file, const TextLimits& l) {
    auto set = read_token_set(file, "test", {}, l);
    EXPECT_TRUE(set.has_value()) << (set ? "" : set.error().message);
    return set ? *std::move(set) : TokenSet();
}

std::string error_of(std::string_view file, const TextModel& model = {}) {
    const auto set = read_token_set(file, "test", model, limits(100, 100));
    return set ? "" : set.error().message;
}

// Lines of ids [i, i], one record each.
std::string lines(int n) {
    std::string file;
    for (int i = 0; i < n; ++i) file += fmt::format("[{}, {}]\n", i, i);
    return file;
}

TEST(TokenSets, ReadsLinesAndArraysOfArrays) {
    const TokenSet by_line = read("[1, 2, 3]\n\n[4, 5]\n", limits(100, 0));
    const TokenSet nested = read("[[1, 2, 3],\n [4, 5]]\n", limits(100, 0));
    EXPECT_EQ(by_line.n_records, 2);
    EXPECT_EQ(by_line.sequences, nested.sequences);
    EXPECT_EQ(by_line.n_calibration, 2u);
    EXPECT_EQ(by_line.n_rows(), 5);
    EXPECT_EQ(by_line.longest(), 3);
    EXPECT_EQ(read("[7, 8, 9]", limits(100, 0)).sequences, (std::vector<std::vector<TokenId>>{{7, 8, 9}}));
}

TEST(TokenSets, HoldsEveryEighthRecordOut) {
    const TokenSet set = read(lines(20), limits(1000, 1000));
    ASSERT_EQ(set.n_calibration, 18u);
    ASSERT_EQ(set.sequences.size(), 20u);
    EXPECT_EQ(std::set<TokenId>({set.sequences[18][0], set.sequences[19][0]}), (std::set<TokenId>{7, 15}));
    const TokenSet without = read(lines(20), limits(1000, 0));
    EXPECT_EQ(without.n_calibration, 20u);
    const TokenSet three = read(lines(3), limits(1000, 1000));
    EXPECT_EQ(three.n_calibration, 2u);
    EXPECT_EQ(three.sequences.back()[0], 2);
    const TokenSet one = read(lines(1), limits(1000, 1000));
    EXPECT_EQ(one.n_calibration, 1u);
    EXPECT_EQ(one.sequences.size(), 2u);
}

TEST(TokenSets, TakesEvenlyUpToTheLimit) {
    const TokenSet set = read(lines(100), limits(20, 0));
    ASSERT_EQ(set.n_calibration, 10u);
    std::set<int> tens;
    for (const auto& ids : set.sequences) tens.insert(ids[0] / 10);
    EXPECT_GE(tens.size(), 8u);  // of the ten parts of the file
    std::string long_record = "[0";
    for (int i = 1; i < 9000; ++i) long_record += ", 1";
    const TokenSet cut = read(long_record + "]", limits(1'000'000, 0));
    EXPECT_EQ(cut.longest(), 4096);
    EXPECT_EQ(read(long_record + "]", limits(50, 0)).longest(), 50);
}

TEST(TokenSets, RendersChats) {
    const auto chat_template = text::ChatTemplate::parse(
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}<{{ c.function.name }}={{ "
        "c.function.arguments.x }}>"
        "{% endfor %};{% endfor %}{{ tools | length if tools else 0 }}{{ '!' if add_generation_prompt }}");
    ASSERT_TRUE(chat_template.has_value());
    const auto tokenizer = byte_tokenizer();
    const TextModel model{tokenizer.get(), chat_template->get()};
    const char* const record =
        R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, )"
        R"({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 7}"}}, )"
        R"({"function": {"name": "g", "arguments": {"x": 8}}}]}, {"role": "tool", "content": "ok"}], "tools": [{"type": "function"}]})";
    const auto set = read_token_set(record, "test", model, limits(1000, 0));
    ASSERT_TRUE(set.has_value()) << set.error().message;
    const std::vector<TokenId>& ids = set->sequences.front();
    std::string text;
    for (const TokenId id : ids) text += static_cast<char>(id + 33);
    EXPECT_EQ(text, "user:ab;assistant:<f=7><g=8>;tool:ok;1!");
    const auto small = read_token_set(R"({"text": "ab"})", "test", model, {100, 0, 'b' - 33});
    ASSERT_FALSE(small.has_value());
    EXPECT_NE(small.error().message.find("tokenizer.json"), std::string::npos);
    EXPECT_EQ(read_token_set(R"({"text": "ab"})", "test", model, {100, 0, 'b' - 32})->longest(), 2);
}

TEST(TokenSets, ErrorsNameTheLine) {
    EXPECT_NE(error_of("[1, 2]\n[1, 5000]\n").find("line 2"), std::string::npos);
    EXPECT_NE(error_of("[1, 2]\n[1, 5000]\n").find("5000"), std::string::npos);
    EXPECT_NE(error_of("[1, 2]\n{\"a\": 1}\n").find("line 2"), std::string::npos);
    EXPECT_NE(error_of("[1, -2]").find("-2"), std::string::npos);
    EXPECT_NE(error_of("[[1, 2], 3]").find("something else"), std::string::npos);
    EXPECT_NE(error_of("[1.5, 2]").find("no token id"), std::string::npos);
    EXPECT_NE(error_of("{\"messages\": []}").find("tokenizer.json"), std::string::npos);
    EXPECT_NE(error_of("{\"text\": \"a\"}").find("tokenizer.json"), std::string::npos);
    EXPECT_NE(error_of("{\"text\"").find("line 1"), std::string::npos);
    EXPECT_NE(error_of("").find("no record"), std::string::npos);
    EXPECT_NE(error_of("[1]\n[]\n").find("no record"), std::string::npos);
    EXPECT_NE(error_of("\xff\xfe").find("line 1"), std::string::npos);
}

TEST(TokenSets, BuiltInTextsAreTheFile) {
    const auto file = read_file(ESPALIER_SOURCE_DIR "/demo/data/calibration.jsonl", 1 << 20);
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ(default_calibration(), *file);
    EXPECT_NE(error_of(default_calibration()).find("line 1"), std::string::npos);  // chats: need a tokenizer
}

}  // namespace
}  // namespace espalier::quant
