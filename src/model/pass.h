// The plan of one forward pass: which rows there are, where each stands, and which rows share a path.
//
// Input is always a token tree per sequence (law 2): a *spine* of nodes that form a chain and will certainly be committed (the
// prompt, or the last sampled token), then a tree of drafts. Nodes come in topological order; node i's row is the segment's
// first row + i. For attention, rows that see the same keys are handled together: one group for the spine, one for each leaf
// of the tree (rows not yet covered by an earlier leaf). A key is always found at the lane and block of its *position*, so a
// tree gives the bits of its separate chains.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/sequence.h"

namespace espalier::model {

using cache::TokenId;

struct Segment {
    cache::Sequence* sequence = nullptr;
    std::span<const TokenId> tokens;   // one per node
    std::span<const int32_t> parents;  // per node: -1 for node 0, else an earlier node; empty = a chain
    int32_t spine = 1;                 // leading chain nodes that are committed whatever happens, >= 1
};

struct PassLimits {
    int32_t rows_max = 512;  // nodes of all segments together
    int32_t segments_max = 1;
    int32_t tree_nodes_max = 64;  // nodes beyond the spines, all segments together
    int32_t context_tokens = 0;   // longest sequence
};

struct PassRow {
    int32_t segment = 0;
    int32_t node = 0;
    int32_t position = 0;
    int32_t parent_row = -1;  // -1: the committed state
    int32_t tree_row = -1;    // index among the pass' tree nodes, -1 for spine nodes
};

struct PassSegment {
    cache::Sequence* sequence = nullptr;
    int32_t row_begin = 0;
    int32_t n_nodes = 0;
    int32_t spine = 0;
    int32_t base = 0;        // position of node 0
    int32_t first_new = 0;   // nodes before this one were computed by an earlier pass over the same scratch (MTP drafts)
    int32_t tree_begin = 0;  // tree_row of node `spine`
};

// Rows order[begin, end) attend to: committed keys, the spine, then path_rows[path_begin, path_end) in order of position.
struct PassGroup {
    int32_t segment = 0;
    int32_t order_begin = 0;
    int32_t order_end = 0;
    int32_t path_begin = 0;
    int32_t path_end = 0;
};

class Pass {
public:
    explicit Pass(const PassLimits& limits);

    // Plans a pass. Allocates nothing. Errors: invalid_input for a malformed tree, exhausted when a limit is exceeded.
    // base_of: position of a segment's node 0 (the sequence's length for the trunk, its MTP length for the MTP layer).
    enum class Base { trunk, mtp };
    Status plan(std::span<const Segment> segments, Base base, int32_t first_new = 0);

    const PassLimits& limits() const { return limits_; }
    std::span<const PassRow> rows() const { return rows_; }
    std::span<const PassSegment> segments() const { return segments_; }
    std::span<const PassGroup> groups() const { return groups_; }
    std::span<const int32_t> order() const { return order_; }
    std::span<const int32_t> path_rows() const { return path_rows_; }
    std::span<const int32_t> parents() const { return parents_; }  // per row: parent *node*, -1 for node 0
    // Per row: 1 if the next row, and no other, is its child.
    std::span<const uint8_t> continues() const { return continues_; }
    int32_t n_rows() const { return static_cast<int32_t>(rows_.size()); }
    int32_t n_tree_rows() const { return n_tree_rows_; }
    int32_t row(int32_t segment, int32_t node) const { return segments_[static_cast<size_t>(segment)].row_begin + node; }

private:
    Status add_segment(const Segment& segment, Base base, int32_t first_new);
    void add_groups(int32_t segment);

    PassLimits limits_;
    std::vector<PassRow> rows_;
    std::vector<PassSegment> segments_;
    std::vector<PassGroup> groups_;
    std::vector<int32_t> order_;
    std::vector<int32_t> path_rows_;
    std::vector<int32_t> parents_;
    std::vector<uint8_t> is_covered_;
    std::vector<int32_t> n_children_;
    std::vector<uint8_t> continues_;
    int32_t n_tree_rows_ = 0;
};

}  // namespace espalier::model
