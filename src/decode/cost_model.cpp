#include "decode/cost_model.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "base/check.h"
#include "cache/sequence.h"

namespace espalier::decode {
namespace {

constexpr double kBudgetMs = 600;  // of measuring at start
constexpr double kBlend = 0.1;     // weight of a new measurement
constexpr double kOutlier = 3;     // a step that took this many times the expected was disturbed
constexpr double kPerRow = 0.1;    // of the guess
constexpr int32_t kLogitRows = 8;  // as the step loop takes them
constexpr int32_t kSizes[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 65};

double ms_of(std::chrono::steady_clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

CostModel::CostModel() {
    for (int32_t rows = 1; rows <= kRowsMax; ++rows) table_[static_cast<size_t>(rows)] = 1 + kPerRow * (rows - 1);
    factor_.fill(1);
    token_ms_ = table_[1];
}

Status CostModel::measure(model::Forward& forward) {
    cache::Memory& memory = forward.memory();
    TRY_ASSIGN(cache::Sequence sequence, cache::Sequence::create(memory, std::min(forward.limits().context_tokens, 128)));
    const std::vector<cache::TokenId> tokens(kRowsMax, 0);
    std::vector<float> logits(static_cast<size_t>(kLogitRows) * static_cast<size_t>(forward.model().config().vocab));
    const int32_t rows_max =
        std::min({kRowsMax, forward.limits().rows_max, 1 + forward.limits().tree_nodes_max, sequence.context_tokens()});
    using Clock = std::chrono::steady_clock;
    const auto run = [&](int32_t rows) -> Result<double> {
        const model::Segment segment{&sequence, std::span(tokens).first(static_cast<size_t>(rows)), {}, 1};
        const auto begin = Clock::now();
        TRY(forward.run({&segment, 1}));
        forward.logits(0, 0, std::min(rows, kLogitRows), logits.data());
        return ms_of(Clock::now() - begin);
    };
    TRY(run(rows_max));  // touches the scratch
    const auto begin = Clock::now();
    std::array<double, kRowsMax + 1> best{};
    // Rounds over all sizes rather than all repetitions of one: a disturbance hits one sample of each.
    for (int32_t round = 0; round < 5; ++round) {
        for (const int32_t rows : kSizes) {
            if (rows > rows_max) break;
            if (round > 0 && ms_of(Clock::now() - begin) > kBudgetMs) break;
            TRY_ASSIGN(const double ms, run(rows));
            double& least = best[static_cast<size_t>(rows)];
            least = least == 0 ? ms : std::min(least, ms);
        }
    }
    int32_t before = 0;
    for (int32_t rows = 1; rows <= kRowsMax; ++rows) {
        if (best[static_cast<size_t>(rows)] == 0 && rows < kRowsMax) continue;
        double ms = best[static_cast<size_t>(rows)];
        if (ms == 0) ms = table_[static_cast<size_t>(before)] * rows / std::max(1, before);  // beyond what was measured
        if (before > 0) ms = std::max(ms, table_[static_cast<size_t>(before)]);
        for (int32_t r = before + 1; r <= rows; ++r) {
            const double from = before > 0 ? table_[static_cast<size_t>(before)] : ms;
            table_[static_cast<size_t>(r)] = from + (ms - from) * (r - before) / (rows - before);
        }
        before = rows;
    }
    token_ms_ = table_[1];
    return {};
}

size_t CostModel::context_bucket(int32_t context) {
    size_t bucket = 0;
    for (int32_t limit = 1 << 10; bucket + 1 < kContexts && context > limit; limit *= 4) ++bucket;
    return bucket;
}

void CostModel::measured(int32_t rows, int32_t context, double verify_ms) {
    if (rows < 1 || rows > kRowsMax) return;
    const size_t bucket = context_bucket(context);
    double& expected = table_[static_cast<size_t>(rows)];
    if (verify_ms > kOutlier * expected * factor_[bucket]) return;
    // The context's part first: a long context costs more at every number of rows.
    factor_[bucket] = (1 - kBlend) * factor_[bucket] + kBlend * std::clamp(verify_ms / expected, 0.5, 3.0);
    factor_[0] = bucket == 0 ? 1 : factor_[0];
    const double share = verify_ms / factor_[bucket];
    expected = (1 - kBlend) * expected + kBlend * share;
    for (int32_t r = rows + 1; r <= kRowsMax; ++r) {
        double& next = table_[static_cast<size_t>(r)];
        next = std::max(next, table_[static_cast<size_t>(r - 1)]);
    }
    for (int32_t r = rows - 1; r >= 1; --r) {
        double& before = table_[static_cast<size_t>(r)];
        before = std::min(before, table_[static_cast<size_t>(r + 1)]);
    }
}

void CostModel::earned(double step_ms, int32_t tokens) {
    if (tokens < 1) return;
    token_ms_ = (1 - kBlend) * token_ms_ + kBlend * std::min(step_ms / tokens, kOutlier * table_[1]);
}

double CostModel::verify_ms(int32_t rows, int32_t context) const {
    const double factor = factor_[context_bucket(context)];
    if (rows <= kRowsMax) return factor * table_[static_cast<size_t>(std::max(1, rows))];
    // Beyond the table a pass is compute-bound: the last rows' price goes on.
    const double per_row = (table_[kRowsMax] - table_[kRowsMax / 2]) / (kRowsMax - kRowsMax / 2);
    return factor * (table_[kRowsMax] + per_row * (rows - kRowsMax));
}

}  // namespace espalier::decode
