#include "decode/draft_tree.h"

#include <algorithm>

#include "base/check.h"

namespace espalier::decode {

const char* to_string(DraftKind kind) {
    switch (kind) {
        case DraftKind::template_text: return "template";
        case DraftKind::suffix: return "suffix";
        case DraftKind::mtp: return "mtp";
    }
    return "?";
}

void DraftCounts::add(const DraftCounts& other) {
    drafted += other.drafted;
    accepted += other.accepted;
    for (size_t kind = 0; kind < drafted_by.size(); ++kind) {
        drafted_by[kind] += other.drafted_by[kind];
        accepted_by[kind] += other.accepted_by[kind];
    }
}

DraftTree::DraftTree(int32_t nodes_max) : nodes_max_(nodes_max) {
    nodes_.reserve(static_cast<size_t>(nodes_max));
}

int32_t DraftTree::add(int32_t parent, TokenId token, float probability, uint8_t kinds) {
    CHECK(parent >= -1 && parent < size(), "a parent comes before its children");
    if (const int32_t known = child(parent, token); known >= 0) {
        DraftNode& node = nodes_[static_cast<size_t>(known)];
        node.kinds |= kinds;
        node.probability = std::max(node.probability, probability);
        return known;
    }
    if (is_full()) return -1;
    const int32_t depth = parent < 0 ? 1 : (*this)[parent].depth + 1;
    nodes_.push_back({token, parent, depth, probability, kinds});
    return size() - 1;
}

int32_t DraftTree::child(int32_t parent, TokenId token) const {
    for (int32_t node = parent + 1; node < size(); ++node) {
        if ((*this)[node].parent == parent && (*this)[node].token == token) return node;
    }
    return -1;
}

void count_drafts(const DraftTree& tree, std::span<const int32_t> path, DraftCounts& counts) {
    const auto count = [](const DraftNode& node, int64_t& total, std::array<int64_t, kDraftKinds>& by_kind) {
        ++total;
        for (size_t kind = 0; kind < by_kind.size(); ++kind) by_kind[kind] += node.kinds >> kind & 1;
    };
    for (const DraftNode& node : tree.nodes()) count(node, counts.drafted, counts.drafted_by);
    for (const int32_t node : path) count(tree[node], counts.accepted, counts.accepted_by);
}

}  // namespace espalier::decode
