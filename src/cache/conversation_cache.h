// The memory of an engine beside its running requests: the prefix tree under one byte budget, and a store on disk behind it.
//
// Pages of all sequences, states of snapshots and the tree's own bytes count together; who needs room makes it first (make_room),
// so that allocation fails into eviction and never into growth, and a prefill cannot push out the prefix that it goes on from.
//
// What is worth it is written behind: when reading it again would take long, when nothing else is to do, and before memory gets
// so tight that it would be given up unwritten. A prompt that memory does not know well is looked up on disk.
//
// Belongs to the engine thread; memory must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/disk_store.h"
#include "cache/prefix_tree.h"

namespace espalier::cache {

// What the tree's ids and nodes may take of a budget.
int64_t index_bytes_max(int64_t bytes_max);

class ConversationCache {
public:
    struct Options {
        int64_t bytes_max = 0;  // pages in use, states of snapshots, index
        int32_t snapshots_max = 0;
        std::function<int64_t()> clock;    // milliseconds, never goes back
        std::unique_ptr<DiskStore> store;  // null: memory only
    };
    ConversationCache(Memory& memory, Options options);

    PrefixTree::Match match(const CacheKey& key, std::span<const TokenId> prompt) const { return tree_.match(key, prompt); }
    // The sequence that a prompt goes on from, as match() found it; its snapshots count as used now.
    Sequence resume(const CacheKey& key, std::span<const TokenId> prompt, const PrefixTree::Node& node, int32_t context_tokens);
    // The same from disk, if it holds so much more than the `cached` tokens in memory that reading it is the faster way; room for
    // its pages is made. What was read is then kept in memory as well.
    std::optional<Sequence> read_back(const CacheKey& key, std::span<const TokenId> prompt, int32_t cached,
                                      int32_t context_tokens);
    // Gives up snapshots until n_pages more pages fit into the budget, but not `spared`. False if that is not enough.
    bool make_room(int64_t n_pages, const std::string& owner, const PrefixTree::Node* spared = nullptr);
    // Takes a snapshot if there is room for it, or can be made at the cost of less useful ones. True if one is there afterwards.
    bool keep(const CacheKey& key, const Sequence& sequence, PointKind kind);
    void remember(const CacheKey& key, std::span<const TokenId> ids, PrefixTree::Mark mark) {
        tree_.remember(key, ids, mark, options_.clock());
    }
    // After a finished prefill: drops those ladder points that a sparser ladder does not need.
    void thin(const CacheKey& key, std::span<const TokenId> prompt, std::span<const int32_t> ladder);
    // Gives up everything in memory.
    void clear();

    // How many sequences run: each holds a state of its own, outside the budget.
    void set_running(int32_t n_sequences) { n_running_ = n_sequences; }
    // What computing a prompt token costs, as measured: decides what is worth writing and reading.
    void set_ms_per_token(double ms) { ms_per_token_ = ms; }
    // Hands snapshots to the store: all that a later request may want if the engine is idle, else only what would take long to
    // compute again or is about to be given up. Takes back the memory of finished writes. Never waits.
    enum class Moment { busy, idle };
    void write_behind(Moment moment);
    // Whether write_behind(idle) would find more to do once the store has finished something, or now.
    bool has_unwritten() const { return has_unwritten_; }
    // At the end: writes what is not on disk, the newest first, for about ms_max.
    void finish_writing(int64_t ms_max);

    struct Gauges {
        int64_t used_bytes = 0;
        int64_t bytes_max = 0;
        int64_t evictions = 0;
        int64_t disk_reads = 0;
        PrefixTree::Gauges tree;
        std::optional<DiskStore::Gauges> store;
    };
    Gauges gauges() const;
    const PrefixTree& tree() const { return tree_; }

private:
    // Pages in use and states of snapshots, also of those only a write still holds, and what the index takes beyond its share.
    int64_t used_bytes() const;
    bool make_room_for(int64_t bytes, const PrefixTree::VictimRules& rules);
    bool drop_one(const PrefixTree::VictimRules& rules);
    void take_back_writes(PrefixTree::Need need);
    double bytes_to_read(int32_t length) const;
    bool is_worth_reading(int32_t length, int32_t cached) const;
    bool is_worth_writing(const PrefixTree::Node& node, Moment moment) const;
    DiskStore::Kept write(const PrefixTree::Node& node);

    Memory& memory_;
    Options options_;
    int64_t index_bytes_max_;
    PrefixTree tree_;
    double ms_per_token_ = 0;
    double bytes_per_ms_ = 0;  // of reading back, as measured
    int32_t n_running_ = 0;
    bool has_unwritten_ = false;
    int64_t evictions_ = 0;
    int64_t disk_reads_ = 0;
};

}  // namespace espalier::cache
