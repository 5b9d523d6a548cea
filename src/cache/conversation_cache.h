// The memory of an engine beside its running requests: the prefix tree under one byte budget. Pages of all sequences, states of
// snapshots and the tree's own bytes count together; who needs room makes it first (make_room), so that allocation fails into
// eviction and never into growth, and a prefill cannot push out the prefix that it goes on from.
//
// Belongs to the engine thread; memory must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/prefix_tree.h"

namespace espalier::cache {

// What the tree's ids and nodes may take of a budget.
int64_t index_bytes_max(int64_t bytes_max);

class ConversationCache {
public:
    struct Options {
        int64_t bytes_max = 0;  // pages in use, states of snapshots, index
        int32_t snapshots_max = 0;
        std::function<int64_t()> clock;  // milliseconds, never goes back
    };
    ConversationCache(Memory& memory, Options options);

    PrefixTree::Match match(const CacheKey& key, std::span<const TokenId> prompt) const { return tree_.match(key, prompt); }
    // The sequence that a prompt goes on from, as match() found it; its snapshots count as used now.
    Sequence resume(const CacheKey& key, std::span<const TokenId> prompt, const PrefixTree::Node& node, int32_t context_tokens);
    // Gives up snapshots until n_pages more pages fit into the budget, but not `spared`. False if that is not enough.
    bool make_room(int64_t n_pages, const std::string& owner, const PrefixTree::Node* spared = nullptr);
    // Takes a snapshot if there is room for it, or can be made at the cost of less useful ones. True if one is there afterwards.
    bool keep(const CacheKey& key, const Sequence& sequence, PointKind kind);
    void remember(const CacheKey& key, std::span<const TokenId> ids, PrefixTree::Mark mark) {
        tree_.remember(key, ids, mark, options_.clock());
    }
    // After a finished prefill: drops those ladder points that a sparser ladder does not need.
    void thin(const CacheKey& key, std::span<const TokenId> prompt, std::span<const int32_t> ladder);
    // Gives up everything.
    void clear();

    struct Gauges {
        int64_t used_bytes = 0;
        int64_t bytes_max = 0;
        int64_t evictions = 0;
        PrefixTree::Gauges tree;
    };
    Gauges gauges() const;
    const PrefixTree& tree() const { return tree_; }

private:
    // Pages in use and states of snapshots, and what the index takes beyond its share.
    int64_t used_bytes() const;
    bool make_room_for(int64_t bytes, const PrefixTree::VictimRules& rules);

    Memory& memory_;
    Options options_;
    int64_t index_bytes_max_;
    PrefixTree tree_;
    int64_t evictions_ = 0;
};

}  // namespace espalier::cache
