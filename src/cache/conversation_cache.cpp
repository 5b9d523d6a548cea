#include "cache/conversation_cache.h"

#include <algorithm>

namespace espalier::cache {
namespace {

// Bare ids are cheap, but a flood of short prompts must not turn the budget into an index.
constexpr int64_t kIndexShare = 64;
constexpr int64_t kIndexBytesLeast = int64_t{64} << 10;
constexpr int64_t kIndexBytesMost = int64_t{32} << 20;

// What may go for a new snapshot of this kind.
int32_t rank_below(PointKind kind) {
    switch (kind) {
        case PointKind::ladder: return 1;
        case PointKind::prompt_end:
        case PointKind::reply_end: return 2;
        case PointKind::message_end:
        case PointKind::branch:
        case PointKind::tool_boundary:
        case PointKind::user_boundary: break;
    }
    return kRankProtected;
}

}  // namespace

int64_t index_bytes_max(int64_t bytes_max) {
    return std::clamp(bytes_max / kIndexShare, kIndexBytesLeast, kIndexBytesMost);
}

ConversationCache::ConversationCache(Memory& memory, Options options)
    : memory_(memory),
      options_(std::move(options)),
      index_bytes_max_(index_bytes_max(options_.bytes_max)),
      tree_(memory, index_bytes_max_) {}

int64_t ConversationCache::used_bytes() const {
    const SlotPool& pages = memory_.pages();
    const PrefixTree::Gauges tree = tree_.gauges();
    return static_cast<int64_t>(pages.n_slots() - pages.n_free()) * static_cast<int64_t>(pages.slot_bytes()) + tree.state_bytes +
           std::max<int64_t>(0, tree.index_bytes - index_bytes_max_);
}

bool ConversationCache::make_room_for(int64_t bytes, const PrefixTree::VictimRules& rules) {
    while (used_bytes() + bytes > options_.bytes_max - index_bytes_max_) {
        const PrefixTree::Node* victim = tree_.find_victim(rules, options_.clock());
        if (victim == nullptr) return false;
        tree_.drop(*victim);
        ++evictions_;
    }
    return true;
}

bool ConversationCache::make_room(int64_t n_pages, const std::string& owner, const PrefixTree::Node* spared) {
    const int64_t bytes = n_pages * static_cast<int64_t>(memory_.pages().slot_bytes());
    PrefixTree::VictimRules rules;
    rules.owner = owner;
    rules.spared = spared;
    return make_room_for(bytes, rules);
}

Sequence ConversationCache::resume(const CacheKey& key, std::span<const TokenId> prompt, const PrefixTree::Node& node,
                                   int32_t context_tokens) {
    tree_.touch(key, prompt, options_.clock());
    return tree_.fork(node, context_tokens);
}

bool ConversationCache::keep(const CacheKey& key, const Sequence& sequence, PointKind kind) {
    const PrefixTree::Node* there = tree_.find(key, sequence.tokens());
    if (there == nullptr) {
        PrefixTree::VictimRules rules;
        rules.owner = key.owner;
        rules.need = PrefixTree::Need::optional;
        rules.rank_max = rank_below(kind);
        // Its state, the copy of a page that it shares half-filled, and its ids.
        const auto bytes =
            static_cast<int64_t>(memory_.states().slot_bytes() + memory_.pages().slot_bytes() + sequence.tokens().size_bytes());
        while (tree_.gauges().snapshots >= options_.snapshots_max) {
            const PrefixTree::Node* victim = tree_.find_victim(rules, options_.clock());
            if (victim == nullptr) return false;
            tree_.drop(*victim);
            ++evictions_;
        }
        if (!make_room_for(bytes, rules)) return false;
    }
    tree_.keep(key, sequence, kind, options_.clock());
    return true;
}

void ConversationCache::thin(const CacheKey& key, std::span<const TokenId> prompt, std::span<const int32_t> ladder) {
    const std::vector<int32_t> stays = thin_ladder(ladder, static_cast<int32_t>(prompt.size()));
    for (const int32_t length : ladder) {
        if (std::find(stays.begin(), stays.end(), length) != stays.end()) continue;
        const PrefixTree::Node* node = tree_.find(key, prompt.first(static_cast<size_t>(length)));
        if (node != nullptr && PrefixTree::kind(*node) == PointKind::ladder) tree_.drop(*node);
    }
}

void ConversationCache::clear() {
    for (const PrefixTree::Node* node : tree_.snapshots()) tree_.drop(*node);
}

ConversationCache::Gauges ConversationCache::gauges() const {
    const PrefixTree::Gauges tree = tree_.gauges();
    const int64_t index = std::min(tree.index_bytes, index_bytes_max_);
    return {used_bytes() + index, options_.bytes_max, evictions_, tree};
}

}  // namespace espalier::cache
