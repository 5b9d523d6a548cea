// The tokens proposed for one step: a tree below the last token that is certain. Nodes stand in the order in which they were
// added, so a parent comes before its children; no two children of a node carry the same token.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "decode/sampler.h"

namespace espalier::decode {

// Who proposed a node; a node may have several.
enum class DraftKind : uint8_t { template_text, suffix, mtp };
inline constexpr int32_t kDraftKinds = 3;
constexpr uint8_t bit(DraftKind kind) {
    return static_cast<uint8_t>(1u << static_cast<unsigned>(kind));
}
const char* to_string(DraftKind kind);

struct DraftNode {
    TokenId token = 0;
    int32_t parent = -1;  // -1: the root, which is no draft
    int32_t depth = 1;
    float probability = 0;  // of the whole path, an estimate
    uint8_t kinds = 0;
};

// Proposed and accepted nodes, in all and for each source that proposed them.
struct DraftCounts {
    int64_t drafted = 0;
    int64_t accepted = 0;
    std::array<int64_t, kDraftKinds> drafted_by{};
    std::array<int64_t, kDraftKinds> accepted_by{};
    void add(const DraftCounts& other);
};

class DraftTree {
public:
    explicit DraftTree(int32_t nodes_max);

    void clear() { nodes_.clear(); }
    int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
    bool is_full() const { return size() == nodes_max_; }
    std::span<const DraftNode> nodes() const { return nodes_; }
    const DraftNode& operator[](int32_t node) const { return nodes_[static_cast<size_t>(node)]; }

    // A child of `parent` (-1: of the root). One that is there already also gets the kinds, and the higher probability. Returns
    // its index; -1 when the tree is full. Allocates nothing.
    int32_t add(int32_t parent, TokenId token, float probability, uint8_t kinds);
    // The child of `parent` that carries `token`, or -1.
    int32_t child(int32_t parent, TokenId token) const;
    // Nodes from n on are dropped.
    void cut(int32_t n) { nodes_.resize(static_cast<size_t>(n)); }

private:
    int32_t nodes_max_;
    std::vector<DraftNode> nodes_;
};

// Adds a step's nodes and those of the accepted path.
void count_drafts(const DraftTree& tree, std::span<const int32_t> path, DraftCounts& counts);

}  // namespace espalier::decode
