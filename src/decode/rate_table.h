// How often something of a kind came true, learned as it happens: counts with a prior, forgetting slowly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::decode {

class RateTable {
public:
    explicit RateTable(size_t n_kinds) : cells_(n_kinds) {}

    // The rate of a kind; `prior` as long as it has been seen rarely.
    float rate(size_t kind, float prior) const {
        const Cell& cell = cells_[kind];
        return (cell.hits + kPriorWeight * prior) / (cell.trials + kPriorWeight);
    }
    void update(size_t kind, bool is_hit) {
        Cell& cell = cells_[kind];
        cell.trials += 1;
        cell.hits += is_hit ? 1.0f : 0.0f;
        if (cell.trials < kTrialsMax) return;
        cell.trials /= 2;
        cell.hits /= 2;
    }
    size_t size() const { return cells_.size(); }
    float trials(size_t kind) const { return cells_[kind].trials; }

private:
    static constexpr float kPriorWeight = 4;
    static constexpr float kTrialsMax = 400;
    struct Cell {
        float hits = 0;
        float trials = 0;
    };
    std::vector<Cell> cells_;
};

}  // namespace espalier::decode
