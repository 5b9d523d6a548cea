// Early stopping: with n samples, t of which lie above a value, the value bounds percentile p at confidence c when seeing t or
// fewer of n above the true percentile has probability below 1 - c, that is I_p(n - t, t + 1) < 0.01. That incomplete beta
// function is the binomial distribution P(X <= t), X ~ B(n, 1 - p), which for the few t of interest is summed directly. Source:
// MLPerf LoadGen's early stopping (results.cc, SingleStream) as used by mlcommons/endpoints.
#include "bench/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace espalier::bench {
namespace {

constexpr double kPercentiles[] = {99.9, 99.0, 97.0, 95.0, 90.0, 80.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0};
constexpr double kEarlyStoppingMin = 50.0;
constexpr double kConfidence = 0.99;
constexpr int kBuckets = 30;

std::string percentile_key(double percentile) {
    return fmt::format("{:.1f}", percentile);
}

// P(X = t) for X ~ B(n, q).
double binomial_mass(int64_t n, int64_t t, double q) {
    const auto lg = [](int64_t k) { return std::lgamma(static_cast<double>(k)); };
    const double log_choose = lg(n + 1) - lg(t + 1) - lg(n - t + 1);
    return std::exp(log_choose + static_cast<double>(t) * std::log(q) + static_cast<double>(n - t) * std::log1p(-q));
}

// The largest t with P(X <= t) < 1 - confidence, or -1.
int64_t discards_max(int64_t n, double percentile) {
    const double q = 1.0 - percentile / 100.0;
    double sum = 0;
    int64_t t = -1;
    while (t + 1 < n) {
        sum += binomial_mass(n, t + 1, q);
        if (!(sum < 1.0 - kConfidence)) break;
        ++t;
    }
    return t;
}

std::vector<double> bucket_edges(double low, double high) {
    const double safe_low = std::max(low, 1.0);
    const double safe_high = std::max(high, safe_low * 10.0);
    const double log_low = std::log(safe_low);
    const double step = (std::log(safe_high) - log_low) / kBuckets;
    std::vector<double> edges(kBuckets + 1);
    for (int i = 0; i <= kBuckets; ++i) edges[i] = std::exp(log_low + i * step);
    return edges;
}

template <class T>
Json histogram_json(const std::vector<T>& sorted) {
    const std::vector<double> edges = bucket_edges(static_cast<double>(sorted.front()), static_cast<double>(sorted.back()));
    std::vector<int64_t> counts(kBuckets, 0);
    for (const T value : sorted) {
        const double clipped = std::clamp(static_cast<double>(value), edges.front(), edges.back());
        const auto above = std::upper_bound(edges.begin(), edges.end(), clipped) - edges.begin();
        ++counts[std::clamp<ptrdiff_t>(above - 1, 0, kBuckets - 1)];
    }
    Json buckets = Json::array();
    for (int i = 0; i < kBuckets; ++i) buckets.push_back(Json::array({edges[i], edges[i + 1]}));
    return Json{{"buckets", std::move(buckets)}, {"counts", counts}};
}

struct Moments {
    double avg = 0;
    double std_dev = 0;
};

// Integers are summed exactly, as Python does: nanoseconds squared exceed what a double holds.
Moments moments_of(const std::vector<int64_t>& values, int64_t total) {
    __extension__ typedef __int128 Wide;
    const auto n = static_cast<Wide>(values.size());
    Wide sum_sq = 0;
    for (const int64_t value : values) sum_sq += static_cast<Wide>(value) * value;
    const Wide numerator = std::max<Wide>(0, n * sum_sq - static_cast<Wide>(total) * total);
    const auto count = static_cast<double>(values.size());
    Moments moments{static_cast<double>(total) / count, 0};
    if (values.size() > 1) moments.std_dev = std::sqrt(static_cast<double>(numerator)) / std::sqrt(count * (count - 1));
    return moments;
}

Moments moments_of(const std::vector<double>& values, double total) {
    double sum_sq = 0;
    for (const double value : values) sum_sq += value * value;
    const auto count = static_cast<double>(values.size());
    Moments moments{total / count, 0};
    if (values.size() > 1) moments.std_dev = std::sqrt(std::max(0.0, (sum_sq - total * total / count) / (count - 1)));
    return moments;
}

template <class T>
Json series_of(std::vector<T> values, EarlyStopping early_stopping) {
    if (values.empty()) return Json::object();
    T total = 0;
    for (const T value : values) total += value;
    const Moments moments = moments_of(values, total);
    std::ranges::sort(values);
    const auto n = static_cast<int64_t>(values.size());
    const auto at = [&](double percentile) {
        return static_cast<double>(values[static_cast<size_t>(percentile / 100.0 * static_cast<double>(n - 1))]);
    };
    Json percentiles = Json::object();
    Json bounds = Json::object();
    for (const double percentile : kPercentiles) {
        percentiles[percentile_key(percentile)] = at(percentile);
        if (percentile < kEarlyStoppingMin) continue;
        const std::optional<int64_t> rank = early_stopping_rank(n, percentile);
        bounds[percentile_key(percentile)] = rank ? Json(static_cast<double>(values[*rank - 1])) : Json(nullptr);
    }
    Json series{{"total", total},     {"min", values.front()}, {"max", values.back()},
                {"median", at(50.0)}, {"avg", moments.avg},    {"std_dev", moments.std_dev}};
    series["percentiles"] = std::move(percentiles);
    if (early_stopping == EarlyStopping::yes) series["early_stopping_percentiles"] = std::move(bounds);
    series["histogram"] = histogram_json(values);
    return series;
}

}  // namespace

std::optional<int64_t> early_stopping_rank(int64_t n, double percentile) {
    const int64_t t = discards_max(n, percentile);
    if (t < 1) return std::nullopt;
    return n - t + 1;
}

int64_t early_stopping_queries_min(double percentile) {
    int64_t low = 1;
    int64_t high = 1;
    while (discards_max(high, percentile) < 1) high *= 2;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (discards_max(middle, percentile) < 1) low = middle + 1;
        else high = middle;
    }
    return low;
}

Json series_json(std::vector<int64_t> values, EarlyStopping early_stopping) {
    return series_of(std::move(values), early_stopping);
}
Json series_json(std::vector<double> values, EarlyStopping early_stopping) {
    return series_of(std::move(values), early_stopping);
}

}  // namespace espalier::bench
