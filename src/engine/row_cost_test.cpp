#include "engine/row_cost.h"

#include <gtest/gtest.h>

namespace espalier::engine {
namespace {

TEST(RowCost, BeginsWithShortStepsAndGrows) {
    RowCost cost;
    EXPECT_LE(cost.rows_in(700), 32);
    cost.learn(16, 16, 100);
    EXPECT_DOUBLE_EQ(cost.ms(), 6.25) << "more were not allowed";
    EXPECT_EQ(cost.rows_in(700), 112);
    cost.learn(112, 112, 112);
    EXPECT_EQ(cost.rows_in(700), RowCost::kRowsMax);
    EXPECT_EQ(cost.rows_in(1), RowCost::kRowsLeast);
}

TEST(RowCost, AShortPassIsAnUpperBound) {
    RowCost cost;
    cost.learn(512, 512, 512);
    cost.learn(20, 512, 100);
    EXPECT_DOUBLE_EQ(cost.ms(), 1) << "mostly reading of weights";
    cost.learn(3, 512, 0.1);
    EXPECT_DOUBLE_EQ(cost.ms(), 1) << "too few to say anything";
    cost.learn(20, 512, 10);
    EXPECT_DOUBLE_EQ(cost.ms(), 0.5);
    cost.learn(128, 512, 384);
    EXPECT_DOUBLE_EQ(cost.ms(), 3) << "the machine got slower";
}

TEST(RowCost, ASlowMachineIsBelieved) {
    RowCost cost;
    cost.learn(16, 16, 3200);
    EXPECT_DOUBLE_EQ(cost.ms(), 200);
    EXPECT_EQ(cost.rows_in(700), RowCost::kRowsLeast);
}

}  // namespace
}  // namespace espalier::engine
