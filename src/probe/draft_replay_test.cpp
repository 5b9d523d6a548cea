#include "probe/draft_replay.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "text/tokenizer_test_data.h"

namespace espalier::probe {
namespace {

class DraftReplayTest : public testing::Test {
protected:
    void SetUp() override {
        const std::string root = ESPALIER_SOURCE_DIR;
        auto dataset = bench::load_dataset(root + "/demo/data/agentic_two.jsonl");
        ASSERT_TRUE(dataset.has_value());
        dataset_ = *std::move(dataset);
        options_.tokenizer = text::testing::real_tokenizer();
        const auto source = read_file(text::testing::golden_path("templates/qwen3.6.jinja"), 1 << 20);
        options_.chat_template = *text::ChatTemplate::parse(*source);
    }
    Json replay(const char* draft) {
        options_.draft = *decode::DraftOptions::parse(draft);
        const auto result = replay_drafts(dataset_, options_);
        EXPECT_TRUE(result.has_value());
        return *result;
    }

    bench::Dataset dataset_;
    DraftReplayOptions options_;
};

TEST_F(DraftReplayTest, RecordedRepliesOfTheWorkloadTakeFewRounds) {
    const Json off = replay("off");
    EXPECT_EQ(off["rounds"], off["plain_rounds"]) << "the prompt's pass gives the first token, every round one more";
    EXPECT_EQ(off["drafted"], 0);
    const Json all = replay("suffix,template,prefill");
    EXPECT_EQ(all["turns"], 71);
    EXPECT_EQ(all["plain_rounds"], off["plain_rounds"]);
    EXPECT_LE(all["rounds"].get<double>(), 25.0) << "17.4 measured";
    EXPECT_GE(all["heads_in_prefill"].get<double>(), 0.99) << "the head of a call is verified with the prompt";
    // Every pass adds one token and what was accepted; the last one ends the reply.
    const double n_accepted = all["accepted"].get<double>() / all["turns"].get<double>();
    EXPECT_NEAR(all["rounds"].get<double>() + n_accepted, all["plain_rounds"].get<double>(), 1e-9);
    EXPECT_GT(replay("suffix,prefill")["rounds"], all["rounds"]);
    EXPECT_GT(replay("template,prefill")["rounds"], all["rounds"]);
    EXPECT_GT(replay("suffix,template")["rounds"], all["rounds"]);
    EXPECT_EQ(replay("auto")["rounds"], all["rounds"]) << "what needs a model is left out";
}

TEST_F(DraftReplayTest, ALoneMtpHeadNeedsAModel) {
    options_.draft = *decode::DraftOptions::parse("mtp");
    const auto result = replay_drafts(dataset_, options_);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace espalier::probe
