#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "decode/random.h"
#include "decode/stop_matcher.h"

namespace espalier::decode {
namespace {

Sampler make_sampler(int32_t vocab, int32_t usable) {
    return Sampler(kernels::kernel_table(kernels::Isa::scalar), vocab, usable);
}

TEST(Random, IsAPureFunctionOfSeedAndPosition) {
    EXPECT_EQ(uniform_at(1, 2), uniform_at(1, 2));
    EXPECT_NE(uniform_at(1, 2), uniform_at(1, 3));
    EXPECT_NE(uniform_at(1, 2), uniform_at(2, 2));
    double sum = 0;
    for (uint64_t position = 0; position < 10000; ++position) {
        const double u = uniform_at(42, position);
        ASSERT_GE(u, 0.0);
        ASSERT_LT(u, 1.0);
        sum += u;
    }
    EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEqualsAndNoPaddingRow) {
    Sampler sampler = make_sampler(6, 5);
    std::vector<float> logits = {1, 3, 3, 2, 3, 9};
    EXPECT_EQ(sampler.choose(logits, {}, 0, {}, {}), 1);
}

TEST(Sampler, DrawsFollowTheDistribution) {
    Sampler sampler = make_sampler(4, 4);
    SamplerParams params;
    params.temperature = 2.0f;
    const std::vector<float> logits = {0.0f, 2.0f, 4.0f, -1.0f};
    std::array<int, 4> counts{};
    constexpr int kDraws = 20000;
    for (int position = 0; position < kDraws; ++position) {
        std::vector<float> copy = logits;
        ++counts[static_cast<size_t>(sampler.choose(copy, params, position, {}, {}))];
    }
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / 2.0);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(counts[i] / double{kDraws}, std::exp(logits[i] / 2.0) / total, 0.012) << i;
}

TEST(Sampler, CutsByTopKTopPAndMinP) {
    Sampler sampler = make_sampler(5, 5);
    const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.07f), std::log(0.03f)};
    const auto highest_id_drawn = [&](const SamplerParams& params) {
        TokenId highest = 0;
        for (int position = 0; position < 3000; ++position) {
            std::vector<float> copy = logits;
            highest = std::max(highest, sampler.choose(copy, params, position, {}, {}));
        }
        return highest;
    };
    SamplerParams params;
    params.temperature = 1.0f;
    EXPECT_EQ(highest_id_drawn(params), 4);
    params.top_k = 2;
    EXPECT_EQ(highest_id_drawn(params), 1);
    params.top_k = 0;
    params.top_p = 0.75f;
    EXPECT_EQ(highest_id_drawn(params), 2) << "0.4 + 0.3 is not yet 0.75";
    params.top_p = 1.0f;
    params.min_p = 0.4f;
    EXPECT_EQ(highest_id_drawn(params), 2) << "0.2 is half of 0.4, 0.07 is not";
    params.min_p = 0.6f;
    EXPECT_EQ(highest_id_drawn(params), 1);
    params.min_p = 0;
    params.top_p = 0.0f;
    EXPECT_EQ(highest_id_drawn(params), 0) << "the best token always stays";
}

TEST(Sampler, PenaltiesUseThePromptOnlyForRepetition) {
    Sampler sampler = make_sampler(3, 3);
    SamplerParams params;
    params.repetition_penalty = 2.0f;
    const std::array<TokenId, 2> prompt = {0, 0};
    std::vector<float> logits = {3.0f, 2.0f, -1.0f};
    EXPECT_EQ(sampler.choose(logits, params, 0, prompt, {}), 1);
    EXPECT_FLOAT_EQ(logits[0], 1.5f) << "counted once";
    params.repetition_penalty = 1.0f;
    params.presence_penalty = 0.25f;
    params.frequency_penalty = 0.5f;
    const std::array<TokenId, 3> reply = {1, 1, 2};
    logits = {1.0f, 2.0f, -1.0f};
    sampler.choose(logits, params, 0, prompt, reply);
    EXPECT_FLOAT_EQ(logits[0], 1.0f);
    EXPECT_FLOAT_EQ(logits[1], 2.0f - 0.25f - 1.0f);
    EXPECT_FLOAT_EQ(logits[2], -1.0f - 0.25f - 0.5f);
    logits = {1.0f, 2.0f, -1.0f};
    sampler.choose(logits, params, 0, prompt, {});
    EXPECT_FLOAT_EQ(logits[1], 2.0f) << "counts of an earlier request are gone";
}

TEST(Sampler, BiasMovesAToken) {
    Sampler sampler = make_sampler(3, 3);
    SamplerParams params;
    params.logit_bias = {{2, 10.0f}, {99, 5.0f}, {-1, 5.0f}};
    std::vector<float> logits = {1, 2, 0};
    EXPECT_EQ(sampler.choose(logits, params, 0, {}, {}), 2);
}

TEST(Sampler, NamesTheParameterThatIsOutOfRange) {
    EXPECT_TRUE(check_params({}).has_value());
    const auto message = [](auto change) {
        SamplerParams params;
        change(params);
        const Status status = check_params(params);
        return status ? std::string() : status.error().message;
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_NE(message([&](SamplerParams& p) { p.temperature = nan; }).find("temperature"), std::string::npos);
    EXPECT_NE(message([&](SamplerParams& p) { p.temperature = -1; }).find("temperature"), std::string::npos);
    EXPECT_NE(message([&](SamplerParams& p) { p.top_p = 2; }).find("top-p"), std::string::npos);
    EXPECT_NE(message([&](SamplerParams& p) { p.repetition_penalty = 0; }).find("repetition"), std::string::npos);
    EXPECT_NE(message([&](SamplerParams& p) { p.top_k = -3; }).find("top-k"), std::string::npos);
}

TEST(Sampler, SurvivesNaN) {
    Sampler sampler = make_sampler(3, 3);
    SamplerParams params;
    params.temperature = 1.0f;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> logits = {nan, nan, nan};
    EXPECT_EQ(sampler.choose(logits, params, 0, {}, {}), 0);
    logits = {nan, 1.0f, nan};
    EXPECT_EQ(sampler.choose(logits, params, 0, {}, {}), 1);
}

TEST(Sampler, LogprobsSumToOne) {
    const Sampler sampler = make_sampler(4, 3);
    const std::vector<float> logits = {1, 2, 3, 50};
    const auto rows = sampler.logprobs(logits, 0, 3);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].token, 0);
    EXPECT_EQ(rows[1].token, 2);
    double total = 0;
    for (size_t i = 1; i < rows.size(); ++i) total += std::exp(rows[i].logprob);
    EXPECT_NEAR(total, 1.0, 1e-6);
}

TEST(StopMatcher, FindsTheSamePlaceHoweverTheTextIsCut) {
    const std::string text = "abcabcd END and END";
    const std::vector<std::string> stops = {"abcd", "END"};
    StopMatcher whole(stops);
    EXPECT_EQ(whole.push(text), 3);
    for (size_t size = 1; size < 6; ++size) {
        StopMatcher matcher(stops);
        int64_t found = -1;
        for (size_t i = 0; i < text.size() && found < 0; i += size) found = matcher.push(text.substr(i, size));
        EXPECT_EQ(found, 3) << size;
    }
    StopMatcher none({"", "zzz"});
    EXPECT_EQ(none.push(text), -1);
    EXPECT_TRUE(StopMatcher({""}).is_idle());
}

}  // namespace
}  // namespace espalier::decode
