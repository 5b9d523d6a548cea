#include "model/pass.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace espalier::model {

Pass::Pass(const PassLimits& limits) : limits_(limits) {
    const auto rows = static_cast<size_t>(limits.rows_max);
    const auto tree = static_cast<size_t>(limits.tree_nodes_max);
    rows_.reserve(rows);
    segments_.reserve(static_cast<size_t>(limits.segments_max));
    groups_.reserve(static_cast<size_t>(limits.segments_max) + tree);
    order_.reserve(rows);
    path_rows_.reserve(tree * (tree + 1) / 2 + 1);
    parents_.reserve(rows);
    is_covered_.reserve(rows);
    n_children_.reserve(rows);
    continues_.reserve(rows);
}

Status Pass::plan(std::span<const Segment> segments, Base base, int32_t first_new) {
    rows_.clear();
    segments_.clear();
    groups_.clear();
    order_.clear();
    path_rows_.clear();
    parents_.clear();
    is_covered_.clear();
    n_children_.clear();
    continues_.clear();
    n_tree_rows_ = 0;
    if (segments.empty() || segments.size() > static_cast<size_t>(limits_.segments_max)) {
        return exhausted(fmt::format("{} sequences in one pass, the limit is {}", segments.size(), limits_.segments_max));
    }
    for (const Segment& segment : segments) TRY(add_segment(segment, base, first_new));
    for (int32_t index = 0; index < static_cast<int32_t>(segments_.size()); ++index) add_groups(index);
    for (size_t row = 0; row < rows_.size(); ++row) {
        const bool is_followed = row + 1 < rows_.size() && rows_[row + 1].parent_row == static_cast<int32_t>(row);
        continues_.push_back(is_followed && n_children_[row] == 1 ? 1 : 0);
    }
    return {};
}

Status Pass::add_segment(const Segment& segment, Base base, int32_t first_new) {
    PassSegment planned;
    planned.sequence = segment.sequence;
    planned.row_begin = n_rows();
    planned.n_nodes = static_cast<int32_t>(segment.tokens.size());
    planned.spine = segment.spine;
    planned.base = base == Base::trunk ? segment.sequence->length() : segment.sequence->mtp_length();
    planned.first_new = first_new;
    planned.tree_begin = n_tree_rows_;
    const int32_t n_tree = planned.n_nodes - planned.spine;
    if (planned.spine < 1 || n_tree < 0) {
        return invalid_input(fmt::format("a segment of {} nodes cannot have a spine of {}", planned.n_nodes, planned.spine));
    }
    if (n_rows() + planned.n_nodes > limits_.rows_max || n_tree_rows_ + n_tree > limits_.tree_nodes_max) {
        return exhausted(
            fmt::format("a pass takes {} rows and {} draft nodes at most", limits_.rows_max, limits_.tree_nodes_max));
    }
    if (!segment.parents.empty() && segment.parents.size() != segment.tokens.size()) {
        return invalid_input(fmt::format("{} parents for {} nodes", segment.parents.size(), segment.tokens.size()));
    }
    const auto segment_index = static_cast<int32_t>(segments_.size());
    for (int32_t node = 0; node < planned.n_nodes; ++node) {
        const int32_t parent = segment.parents.empty() ? node - 1 : segment.parents[static_cast<size_t>(node)];
        const bool is_spine = node < planned.spine;
        if (is_spine ? parent != node - 1 : parent < planned.spine - 1 || parent >= node) {
            return invalid_input(fmt::format("node {} has parent {}: {}", node, parent,
                                             is_spine ? "the spine is a chain" : "a parent comes earlier, after the spine"));
        }
        PassRow row;
        row.segment = segment_index;
        row.node = node;
        row.parent_row = parent < 0 ? -1 : planned.row_begin + parent;
        row.position = parent < 0 ? planned.base : rows_[static_cast<size_t>(row.parent_row)].position + 1;
        row.tree_row = is_spine ? -1 : planned.tree_begin + node - planned.spine;
        if (parent >= 0) ++n_children_[static_cast<size_t>(row.parent_row)];
        rows_.push_back(row);
        parents_.push_back(parent);
        n_children_.push_back(0);
        is_covered_.push_back(0);
    }
    n_tree_rows_ += n_tree;
    segments_.push_back(planned);
    return {};
}

void Pass::add_groups(int32_t segment_index) {
    const PassSegment& segment = segments_[static_cast<size_t>(segment_index)];
    PassGroup spine_group;
    spine_group.segment = segment_index;
    spine_group.order_begin = static_cast<int32_t>(order_.size());
    for (int32_t node = segment.first_new; node < segment.spine; ++node) order_.push_back(segment.row_begin + node);
    spine_group.order_end = static_cast<int32_t>(order_.size());
    if (spine_group.order_end > spine_group.order_begin) groups_.push_back(spine_group);

    for (int32_t leaf = segment.spine; leaf < segment.n_nodes; ++leaf) {
        if (n_children_[static_cast<size_t>(segment.row_begin + leaf)] != 0) continue;
        PassGroup group;
        group.segment = segment_index;
        group.order_begin = static_cast<int32_t>(order_.size());
        group.path_begin = static_cast<int32_t>(path_rows_.size());
        for (int32_t node = leaf; node >= segment.spine; node = parents_[static_cast<size_t>(segment.row_begin + node)]) {
            path_rows_.push_back(segment.row_begin + node);
        }
        group.path_end = static_cast<int32_t>(path_rows_.size());
        std::reverse(path_rows_.begin() + group.path_begin, path_rows_.end());
        for (int32_t i = group.path_begin; i < group.path_end; ++i) {
            const int32_t row = path_rows_[static_cast<size_t>(i)];
            if (is_covered_[static_cast<size_t>(row)] != 0 || row - segment.row_begin < segment.first_new) continue;
            is_covered_[static_cast<size_t>(row)] = 1;
            order_.push_back(row);
        }
        group.order_end = static_cast<int32_t>(order_.size());
        if (group.order_end > group.order_begin) groups_.push_back(group);
    }
}

}  // namespace espalier::model
