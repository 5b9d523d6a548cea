// What the cost model concludes from given times: nothing is measured here.
#include "decode/cost_model.h"

#include <gtest/gtest.h>

namespace espalier::decode {
namespace {

void expect_rising(const CostModel& cost) {
    for (int32_t rows = 1; rows < CostModel::kRowsMax + 20; ++rows) {
        EXPECT_LE(cost.verify_ms(rows, 0), cost.verify_ms(rows + 1, 0)) << rows;
    }
}

TEST(CostModel, BeginsWithAGuess) {
    const CostModel cost;
    EXPECT_DOUBLE_EQ(cost.verify_ms(1, 0), 1.0);
    EXPECT_DOUBLE_EQ(cost.verify_ms(11, 0), 2.0);
    EXPECT_DOUBLE_EQ(cost.verify_ms(11, 100'000), 2.0);
    EXPECT_DOUBLE_EQ(cost.token_ms(), 1.0);
    expect_rising(cost);
}

TEST(CostModel, StepsMoveTheirRowsAndMoreRowsNeverCostLess) {
    CostModel cost;
    for (int i = 0; i < 200; ++i) cost.measured(8, 100, 3.0);
    EXPECT_NEAR(cost.verify_ms(8, 0), 3.0, 0.05);
    expect_rising(cost);
    for (int i = 0; i < 200; ++i) cost.measured(32, 100, 2.0);
    EXPECT_NEAR(cost.verify_ms(32, 0), 2.0, 0.1);
    EXPECT_NEAR(cost.verify_ms(8, 0), 2.0, 0.1) << "32 rows were seen to take no longer";
    expect_rising(cost);
}

TEST(CostModel, ALongContextHasItsOwnFactor) {
    CostModel cost;
    for (int i = 0; i < 300; ++i) {
        cost.measured(1, 100, 1.0);
        cost.measured(1, 20'000, 2.0);
    }
    EXPECT_NEAR(cost.verify_ms(1, 100), 1.0, 0.1);
    EXPECT_NEAR(cost.verify_ms(1, 20'000), 2.0, 0.2);
    EXPECT_NEAR(cost.verify_ms(4, 20'000) / cost.verify_ms(4, 100), 2.0, 0.2) << "for every number of rows";
}

TEST(CostModel, ADisturbedStepIsNoMeasurement) {
    CostModel cost;
    cost.measured(4, 0, 50.0);
    EXPECT_DOUBLE_EQ(cost.verify_ms(4, 0), 1.3);
    cost.measured(0, 0, 1.0);
    cost.measured(CostModel::kRowsMax + 1, 0, 1.0);
    expect_rising(cost);
    for (int i = 0; i < 1000; ++i) cost.earned(1000.0, 1);
    EXPECT_LE(cost.token_ms(), 3.0) << "what is earned is bounded by what a row costs";
}

TEST(CostModel, ATokenCostsWhatStepsEarn) {
    CostModel cost;
    cost.earned(5.0, 0);
    EXPECT_DOUBLE_EQ(cost.token_ms(), 1.0);
    for (int i = 0; i < 200; ++i) cost.earned(1.5, 3);
    EXPECT_NEAR(cost.token_ms(), 0.5, 0.01);
}

}  // namespace
}  // namespace espalier::decode
