// The snapshots that an engine keeps, as a radix tree over token ids: a new prompt goes on from the deepest snapshot that is a
// true prefix of it (ids are compared, never hashes), at any token.
//
// An edge holds a run of ids, a node may hold a snapshot: references to the KV pages up to there and to one state slot. Snapshots
// of one timeline share pages, so one costs its state and at most one page of its own. Nodes whose snapshot is gone stay for a
// while as bare ids: they tell where a prompt leaves what was known (a junction worth a snapshot) and why something was not
// found.
//
// Roots are separate per owner (the API key) and salt: nothing is found across them. Owners share the memory: who holds more than
// an equal share loses snapshots first.
//
// A snapshot may be of the whole prompt: the last hidden row is part of the state, so the next token's logits follow from it.
//
// Belongs to the engine thread; memory must outlive it. Time is handed in, in milliseconds of a clock that never goes back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "cache/sequence.h"
#include "cache/snapshot_policy.h"

namespace espalier::cache {

// Whose cache it is.
struct CacheKey {
    std::string owner;
    std::string salt;
    auto operator<=>(const CacheKey&) const = default;
};

class PrefixTree {
public:
    struct Node;  // opaque; a snapshot's node stays where it is until the snapshot is dropped

    // index_bytes_max: ids and nodes; beyond it bare ids are forgotten, those unused for longest first.
    PrefixTree(Memory& memory, int64_t index_bytes_max);
    ~PrefixTree();
    PrefixTree(const PrefixTree&) = delete;
    PrefixTree& operator=(const PrefixTree&) = delete;

    static constexpr int32_t kGoesOnTokens = 24;
    struct Match {
        const Node* node = nullptr;    // the deepest snapshot that is a prefix
        int32_t cached = 0;            // its length
        int32_t known = 0;             // leading ids that some remembered timeline shares, with or without a snapshot
        int32_t deepest = 0;           // the longest prompt of the timeline used last among those; at least `known`
        std::vector<TokenId> goes_on;  // that timeline's ids after `known`, at most kGoesOnTokens
        bool has_echo = false;         // behind the snapshot, the prompt holds a whole earlier reply as it was produced
    };
    Match match(const CacheKey& key, std::span<const TokenId> prompt) const;

    // A sequence that goes on from a snapshot.
    Sequence fork(const Node& node, int32_t context_tokens) const;
    // Every snapshot that is a prefix of the prompt counts as used now.
    void touch(const CacheKey& key, std::span<const TokenId> prompt, int64_t now_ms);
    // Takes a snapshot of the sequence. If there is one of these ids already, it counts as used now and keeps the higher kind.
    // Returns whether a new one was taken.
    bool keep(const CacheKey& key, const Sequence& sequence, PointKind kind, int64_t now_ms);
    // Remembers ids without a snapshot: those of a whole prompt, or of a prompt and the whole reply to it.
    enum class Mark : uint8_t { none, prompt_end, reply_end };
    void remember(const CacheKey& key, std::span<const TokenId> ids, Mark mark, int64_t now_ms);
    // The snapshot of exactly these ids, or null.
    const Node* find(const CacheKey& key, std::span<const TokenId> ids) const;
    // Gives a snapshot up.
    void drop(const Node& node);

    // What a snapshot is.
    static int32_t length(const Node& node);
    static PointKind kind(const Node& node);
    static const CacheKey& key(const Node& node);
    static std::vector<TokenId> ids(const Node& node);

    enum class Need {
        must,      // whatever it takes
        optional,  // not at the cost of other owners' shares
    };
    struct VictimRules {
        std::string owner;  // who needs memory
        Need need = Need::must;
        int32_t rank_max = kRankProtected;
        const Node* spared = nullptr;
    };
    // The snapshot to give up next: of an owner beyond its share, of the lowest rank, unused for longest; null if all are spared.
    const Node* find_victim(const VictimRules& rules, int64_t now_ms) const;
    // All snapshots, those used last first.
    std::vector<const Node*> snapshots() const;
    // All of rank kRankProtected at this time, the ends of the newest replies and of prefills that were broken off; those used
    // last first.
    std::vector<const Node*> tails(int64_t now_ms) const;

    // A mark of the caller's: a copy is kept elsewhere.
    static bool is_stored(const Node& node);
    void set_stored(const Node& node, bool is_stored);

    struct Gauges {
        int32_t snapshots = 0;
        int32_t nodes = 0;
        int64_t page_bytes = 0;  // pages that snapshots hold, each once
        int64_t state_bytes = 0;
        int64_t index_bytes = 0;
    };
    Gauges gauges() const;
    // Pages and states of an owner's snapshots.
    int64_t owner_bytes(const std::string& owner) const;

private:
    struct Root;
    struct Walk {
        Node* node = nullptr;  // the deepest node entered
        int32_t matched = 0;   // ids that agree; node.end - matched are left of its run
    };
    Walk walk(const CacheKey& key, std::span<const TokenId> ids) const;
    Node& insert(const CacheKey& key, std::span<const TokenId> ids, int64_t now_ms);
    Node& split(Node& node, int32_t at);
    void hold(Node& node, const Sequence& sequence, PointKind kind);
    void let_go(Node& node);
    // Joins or removes a node that means nothing any more, and then perhaps its parent.
    void tidy(Node& node);
    void remove_leaf(Node& node);
    void prune_index();
    // Every snapshot with what eviction knows about it.
    std::vector<std::pair<Node*, KeptFacts>> facts(int64_t now_ms) const;
    using Order = std::tuple<int32_t, int32_t, int64_t, uint64_t>;  // tier, rank, last use, serial
    int32_t share_tier(const std::string& owner, const VictimRules& rules) const;

    Memory& memory_;
    int64_t index_bytes_max_;
    int64_t index_bytes_ = 0;
    int32_t n_nodes_ = 0;
    uint64_t serial_ = 0;
    std::map<CacheKey, std::unique_ptr<Root>> roots_;
    std::set<Node*> kept_;
    std::vector<int32_t> page_holders_;           // snapshots that hold a page
    std::map<std::string, int64_t> owner_bytes_;  // entries above 0
};

}  // namespace espalier::cache
