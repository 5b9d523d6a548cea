// What a prompt row costs, learnt from the passes: how many rows a step may have, and what computing a conversation again would
// take.
#pragma once

#include <algorithm>
#include <cstdint>

namespace espalier::engine {

class RowCost {
public:
    // Rows of one pass: the weights are read once for all of them; beyond this the gain is small and steps get long.
    static constexpr int32_t kRowsMax = 512;
    static constexpr int32_t kRowsLeast = 16;
    // A pass of so many rows tells what a row costs.
    static constexpr int32_t kRowsTelling = 128;

    double ms() const { return ms_; }

    // Rows of a step that is to take about this long.
    int32_t rows_in(double step_ms) const {
        return static_cast<int32_t>(std::clamp(step_ms / ms_, double{kRowsLeast}, double{kRowsMax}));
    }

    // A step read n_rows of a prompt, where n_allowed would have been possible. Reading the weights is most of a short pass: it
    // only counts if no more rows were allowed, or as an upper bound.
    void learn(int32_t n_rows, int32_t n_allowed, double step_ms) {
        if (n_rows < kRowsLeast) return;
        const double ms = std::max(1e-3, step_ms / n_rows);
        if (n_rows >= std::min(n_allowed, kRowsTelling) || ms < ms_) ms_ = ms;
    }

private:
    double ms_ = 40;  // until measured: short steps
};

}  // namespace espalier::engine
