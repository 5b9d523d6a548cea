// Series statistics exactly as the official harness writes them into result_summary.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/json.h"

namespace espalier::bench {

enum class EarlyStopping { no, yes };

// {total, min, max, median, avg, std_dev, percentiles, [early_stopping_percentiles,] histogram}; {} for an empty series.
// Percentiles are observed values (no interpolation), the histogram has 30 logarithmic buckets.
Json series_json(std::vector<int64_t> values, EarlyStopping early_stopping);
Json series_json(std::vector<double> values, EarlyStopping early_stopping);

// The 1-based ascending rank of the value that bounds a percentile (0..100) of n samples with 99 % confidence, or nullopt when n
// is too small for any bound.
std::optional<int64_t> early_stopping_rank(int64_t n, double percentile);

// The smallest n that has a rank.
int64_t early_stopping_queries_min(double percentile);

}  // namespace espalier::bench
