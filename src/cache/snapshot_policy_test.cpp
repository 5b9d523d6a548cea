#include "cache/snapshot_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = PointKind;

std::vector<Point> plan(int32_t prompt, int32_t cached, const std::vector<Point>& boundaries, int32_t branch = 0) {
    return plan_points({prompt, cached, boundaries, branch});
}

TEST(SnapshotPolicy, ATurnEndsWithItsStableBoundaryAndItsPrompt) {
    // Qwen's template with thinking off: <think> at 997, the closed block ends the prompt.
    EXPECT_THAT(plan(1000, 900, {{997, Kind::tool_boundary}, {1000, Kind::tool_boundary}, {400, Kind::user_boundary}}),
                ElementsAre(Point{997, Kind::tool_boundary}, Point{1000, Kind::prompt_end}));
}

TEST(SnapshotPolicy, BoundariesAFewTokensApartShareTheShallower) {
    EXPECT_THAT(plan(1000, 0, {{996, Kind::user_boundary}, {997, Kind::tool_boundary}, {1000, Kind::tool_boundary}}),
                ElementsAre(Point{996, Kind::user_boundary}, Point{1000, Kind::prompt_end}));
    EXPECT_THAT(
        merge_boundaries(std::vector<Point>{{8, Kind::tool_boundary}, {0, Kind::user_boundary}, {17, Kind::tool_boundary}}),
        ElementsAre(Point{0, Kind::user_boundary}, Point{17, Kind::tool_boundary}));
}

TEST(SnapshotPolicy, ABoundaryAtTheEndIsOnePoint) {
    EXPECT_THAT(plan(50, 0, {{50, Kind::tool_boundary}}), ElementsAre(Point{50, Kind::tool_boundary}));
}

TEST(SnapshotPolicy, NothingIsTakenWhereThePromptWasRestored) {
    EXPECT_THAT(plan(1000, 1000, {{997, Kind::tool_boundary}, {500, Kind::message_end}}), IsEmpty());
    EXPECT_THAT(plan(1000, 998, {{997, Kind::tool_boundary}}), ElementsAre(Point{1000, Kind::prompt_end}));
}

TEST(SnapshotPolicy, ALongFirstPromptGetsJunctions) {
    const std::vector<Point> ends = {{1500, Kind::message_end}, {1900, Kind::message_end}, {1950, Kind::message_end},
                                     {3900, Kind::message_end}, {3960, Kind::message_end}, {4100, Kind::user_boundary}};
    EXPECT_THAT(plan(4104, 0, ends), ElementsAre(Point{1500, Kind::message_end},    // system and tools
                                                 Point{1900, Kind::message_end},    // the first question
                                                 Point{3900, Kind::inner_message},  // a big tool result
                                                 Point{4100, Kind::user_boundary}, Point{4104, Kind::prompt_end}));
}

TEST(SnapshotPolicy, ShortMessagesGetNone) {
    EXPECT_THAT(
        plan(600, 0, {{30, Kind::message_end}, {90, Kind::message_end}, {595, Kind::message_end}, {598, Kind::user_boundary}}),
        ElementsAre(Point{598, Kind::user_boundary}, Point{600, Kind::prompt_end}));
}

TEST(SnapshotPolicy, ASeenBranchIsAJunctionIfItSavesEnough) {
    EXPECT_THAT(plan(2000, 100, {}, 1200), ElementsAre(Point{1200, Kind::branch}, Point{2000, Kind::prompt_end}));
    EXPECT_THAT(plan(2000, 1100, {}, 1200), ElementsAre(Point{2000, Kind::prompt_end}));
    EXPECT_THAT(plan(2000, 100, {{1203, Kind::tool_boundary}}, 1200),
                ElementsAre(Point{1203, Kind::tool_boundary}, Point{2000, Kind::prompt_end}));
}

TEST(SnapshotPolicy, VeryLongPrefillsGetALadderThatIsThinned) {
    std::vector<int32_t> ladder;
    for (const Point& point : plan(40000, 1000, {})) {
        if (point.kind == Kind::ladder) ladder.push_back(point.length);
    }
    EXPECT_THAT(ladder, ElementsAre(5096, 9192, 13288, 17384, 21480, 25576, 29672, 33768, 37864));
    EXPECT_THAT(thin_ladder(ladder, 40000), ElementsAre(9192, 25576, 33768, 37864));
    EXPECT_THAT(thin_ladder({}, 40000), IsEmpty());
    EXPECT_THAT(plan(5000, 0, {}), ElementsAre(Point{5000, Kind::prompt_end})) << "not worth it";
}

TEST(SnapshotPolicy, PointsAscendWithoutRepeats) {
    std::vector<Point> boundaries;
    for (int32_t i = 0; i < 40; ++i) boundaries.push_back({i * 611 % 20000, static_cast<Kind>(i % 8)});
    const auto points = plan(20000, 777, boundaries, 9000);
    for (size_t i = 1; i < points.size(); ++i) EXPECT_LT(points[i - 1].length, points[i].length);
    EXPECT_GT(points.front().length, 777);
    EXPECT_EQ(points.back().length, 20000);
}

TEST(SnapshotPolicy, RanksFollowTheOrderOfLoss) {
    const int64_t hour = 3'600'000;
    EXPECT_EQ(eviction_rank({Kind::tool_boundary, false, false, hour + 1}), 0) << "cold";
    EXPECT_LT(eviction_rank({Kind::ladder, true, false, 0}), eviction_rank({Kind::prompt_end, false, false, 0}));
    EXPECT_LT(eviction_rank({Kind::prompt_end, true, false, 0}), eviction_rank({Kind::prompt_end, false, false, 0}));
    EXPECT_LT(eviction_rank({Kind::tool_boundary, true, false, 0}), eviction_rank({Kind::tool_boundary, true, true, 0}));
    EXPECT_LT(eviction_rank({Kind::prompt_end, false, false, 0}), eviction_rank({Kind::tool_boundary, false, false, 0}));
    EXPECT_LT(eviction_rank({Kind::ladder, false, false, 0}), eviction_rank({Kind::message_end, true, false, 0}));
    EXPECT_LT(eviction_rank({Kind::inner_message, true, false, 0}), eviction_rank({Kind::tool_boundary, true, true, 0}));
    EXPECT_EQ(eviction_rank({Kind::user_boundary, false, false, 0}), kRankProtected);
    EXPECT_LT(eviction_rank({Kind::user_boundary, true, false, 0}), kRankProtected);
}

}  // namespace
}  // namespace espalier::cache
