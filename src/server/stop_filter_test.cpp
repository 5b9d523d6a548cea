#include "server/stop_filter.h"

#include <gtest/gtest.h>

#include <random>

namespace espalier::server {
namespace {

std::string joined(const std::vector<TextRun>& runs) {
    std::string out;
    for (const TextRun& run : runs) out += run.text;
    return out;
}

TEST(StopFilter, HoldsBackOnlyWhatMayBecomeAStop) {
    StopFilter filter({"STOP"});
    std::vector<TextRun> out;
    filter.push({"abcS", RunKind::text}, out);
    EXPECT_EQ(joined(out), "abc");
    filter.push({"T", RunKind::text}, out);
    EXPECT_EQ(joined(out), "abc");
    filter.push({"x", RunKind::text}, out);
    EXPECT_EQ(joined(out), "abcSTx");
    filter.push({"ST", RunKind::text}, out);
    filter.finish(-1, out);
    EXPECT_EQ(joined(out), "abcSTxST");
    EXPECT_FALSE(filter.has_matched());
}

// The same text cut anywhere gives the same result: everything before the first stop string.
TEST(StopFilter, ResultIsIndependentOfCuts) {
    std::mt19937 random(7);
    const std::string letters = "aab";
    for (int round = 0; round < 2000; ++round) {
        std::string text;
        for (int i = 0; i < 30; ++i) text += letters[random() % 3];
        const std::string stop = text.substr(random() % 25, 1 + random() % 5);
        StopFilter filter({stop, "never"});
        std::vector<TextRun> out;
        for (size_t at = 0; at < text.size();) {
            const size_t n = 1 + random() % 4;
            filter.push({text.substr(at, n), RunKind::text}, out);
            at += n;
        }
        filter.finish(-1, out);
        EXPECT_TRUE(filter.has_matched());
        EXPECT_EQ(joined(out), text.substr(0, text.find(stop)));
    }
}

TEST(StopFilter, MarkersStayWholeUnlessCut) {
    StopFilter filter({"call>x"});
    std::vector<TextRun> out;
    filter.push({"<tool_call>", RunKind::marker}, out);
    filter.push({"y", RunKind::text}, out);
    ASSERT_EQ(out.size(), 2U);
    EXPECT_EQ(out[0].text, "<tool_call>");
    EXPECT_EQ(out[0].kind, RunKind::marker);
    out.clear();
    filter.push({"<tool_call>", RunKind::marker}, out);
    filter.push({"x", RunKind::text}, out);
    ASSERT_EQ(out.size(), 1U);
    EXPECT_EQ(out[0].text, "<tool_");
    EXPECT_EQ(out[0].kind, RunKind::text);
    StopFilter hidden({"END"});
    out.clear();
    hidden.push({"<|im_end|>", RunKind::hidden}, out);
    ASSERT_EQ(out.size(), 1U);
    EXPECT_EQ(out[0].kind, RunKind::hidden);
}

TEST(StopFilter, KeptBytesOfTheEngineCutTheRest) {
    StopFilter filter({"longer than the text"});
    std::vector<TextRun> out;
    filter.push({"abc longer", RunKind::text}, out);
    filter.finish(5, out);
    EXPECT_EQ(joined(out), "abc l");
}

}  // namespace
}  // namespace espalier::server
