#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/mapped_file.h"

namespace espalier::bench {
namespace {

TEST(Statistics, EarlyStoppingReferenceTable) {
    const auto text = read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/early-stopping.jsonl", 1 << 20);
    ASSERT_TRUE(text.has_value());
    std::istringstream stream(*text);
    int n_rows = 0;
    for (std::string line; std::getline(stream, line); ++n_rows) {
        const Json row = Json::parse(line);
        const double percentile = std::stod(row["percentile"].get<std::string>());
        const auto rank = early_stopping_rank(row["n"].get<int64_t>(), percentile);
        EXPECT_EQ(rank ? Json(*rank) : Json(), row["rank"]) << line;
        EXPECT_EQ(early_stopping_queries_min(percentile), row["min_queries"].get<int64_t>()) << line;
    }
    EXPECT_EQ(n_rows, 120);
}

// The example summary was written by the harness from values that are not given, but its TTFT histogram's edges and its
// percentile keys follow from what it says about them.
TEST(Statistics, ShapeOfTheExampleSummary) {
    const auto text = read_file(std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/example-result_summary.json", 1 << 20);
    ASSERT_TRUE(text.has_value());
    const Json example = Json::parse(*text);
    const Json& ttft = example["ttft"];
    const Json mine =
        series_json(std::vector<int64_t>{ttft["min"].get<int64_t>(), ttft["max"].get<int64_t>()}, EarlyStopping::yes);
    const auto keys = [](const Json& object) {
        std::vector<std::string> names;
        for (const auto& [key, value] : object.items()) names.push_back(key);
        return names;
    };
    EXPECT_EQ(keys(mine), keys(ttft));
    EXPECT_EQ(keys(mine["percentiles"]), keys(ttft["percentiles"]));
    EXPECT_EQ(keys(mine["early_stopping_percentiles"]), keys(ttft["early_stopping_percentiles"]));
    ASSERT_EQ(mine["histogram"]["buckets"].size(), 30u);
    for (int i = 0; i < 30; ++i) {
        for (int side = 0; side < 2; ++side) {
            EXPECT_DOUBLE_EQ(mine["histogram"]["buckets"][i][side].get<double>(),
                             ttft["histogram"]["buckets"][i][side].get<double>());
        }
    }
}

TEST(Statistics, SeriesOfIntegers) {
    const Json series = series_json(std::vector<int64_t>{3, 1, 2, 10}, EarlyStopping::no);
    EXPECT_EQ(series["total"], 16);
    EXPECT_EQ(series["min"], 1);
    EXPECT_EQ(series["max"], 10);
    EXPECT_EQ(series["median"], 2.0);  // an observed value, the lower of the middle two
    EXPECT_EQ(series["avg"], 4.0);
    EXPECT_NEAR(series["std_dev"].get<double>(), 4.08248290463863, 1e-12);
    EXPECT_EQ(series["percentiles"]["99.9"], 3.0);
    EXPECT_FALSE(series.contains("early_stopping_percentiles"));
    int64_t n = 0;
    for (const Json& count : series["histogram"]["counts"]) n += count.get<int64_t>();
    EXPECT_EQ(n, 4);
    EXPECT_EQ(dump_json(series_json(std::vector<int64_t>{}, EarlyStopping::yes)), "{}");
    EXPECT_EQ(series_json(std::vector<int64_t>{7}, EarlyStopping::yes)["std_dev"], 0.0);
}

TEST(Statistics, LargeIntegersStayExact) {
    const int64_t big = 600'000'000'000;
    const Json series = series_json(std::vector<int64_t>{big, big + 2}, EarlyStopping::no);
    EXPECT_NEAR(series["std_dev"].get<double>(), 1.4142135623730951, 1e-9);
    EXPECT_EQ(series["total"], 2 * big + 2);
}

TEST(Statistics, SeriesOfFloats) {
    const Json series = series_json(std::vector<double>{0.5, 1.5}, EarlyStopping::yes);
    EXPECT_EQ(series["total"], 2.0);
    EXPECT_TRUE(series["min"].is_number_float());
    EXPECT_TRUE(series["early_stopping_percentiles"]["50.0"].is_null());
}

}  // namespace
}  // namespace espalier::bench
