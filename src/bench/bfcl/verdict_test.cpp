#include "bench/bfcl/verdict.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/mapped_file.h"
#include "bench/bfcl/python.h"

namespace espalier::bench {
namespace {

using text::Value;

std::vector<Value> read_lines(const std::string& name) {
    const auto text = read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/" + name, 64 << 20);
    EXPECT_TRUE(text.has_value()) << name;
    std::vector<Value> lines;
    std::istringstream stream(text ? *text : "");
    for (std::string line; std::getline(stream, line);) lines.push_back(*text::parse_json_value(line, name));
    return lines;
}

std::string text_of(const Value& line, const char* key) {
    const Value* value = line.find(key);
    return value != nullptr && value->as_string() != nullptr ? *value->as_string() : "";
}

std::map<std::string, BfclTruth> read_truths() {
    std::map<std::string, BfclTruth> truths;
    for (const Value& line : read_lines("bfcl-originals.jsonl")) {
        truths[text_of(line, "id")] = {text_of(line, "subset"), *line.find("functions"), *line.find("ground_truth")};
    }
    return truths;
}

BfclReply reply_of(const Value& line) {
    BfclReply reply{text_of(line, "content"), ""};
    const Value* calls = line.find("tool_calls");
    if (calls != nullptr && py_truthy(*calls)) reply.tool_calls = *text::to_json_text(*calls);
    return reply;
}

TEST(Bfcl, EveryReferenceVerdict) {
    const std::map<std::string, BfclTruth> truths = read_truths();
    const std::vector<Value> lines = read_lines("bfcl-verdicts.jsonl");
    ASSERT_EQ(lines.size(), 1075u);
    for (const Value& line : lines) {
        const std::string id = text_of(line, "id");
        const BfclVerdict verdict = bfcl_verdict(truths.at(text_of(line, "original")), reply_of(line));
        const double* score = line.find("score")->as_float();
        EXPECT_EQ(verdict.score.has_value(), score != nullptr) << id;
        EXPECT_EQ(verdict.score.value_or(-1), score != nullptr ? *score : -1) << id;
        EXPECT_EQ(verdict.error_type, text_of(line, "error_type")) << id;
        if (const Value* extracted = line.find("extracted")) {
            EXPECT_TRUE(py_equal(Value(verdict.extracted), *extracted))
                << id << " " << *text::to_json_text(Value(verdict.extracted));
        }
        if (const Value* errors = line.find("sub_error_types")) {
            text::ValueList mine;
            for (const std::string& error : verdict.sub_errors) mine.emplace_back(error);
            EXPECT_TRUE(py_equal(Value(mine), *errors)) << id;
        }
    }
}

}  // namespace
}  // namespace espalier::bench
