#include "cache/conversation_cache.h"

#include <algorithm>
#include <chrono>

namespace espalier::cache {
namespace {

// Bare ids are cheap, but a flood of short prompts must not turn the budget into an index.
constexpr int64_t kIndexShare = 64;
constexpr int64_t kIndexBytesLeast = int64_t{64} << 10;
constexpr int64_t kIndexBytesMost = int64_t{32} << 20;

// Written at once: what would take longer than this to compute again.
constexpr double kWriteMs = 5000;
// Memory is tight beyond this share of the budget: then what is next to go is written if it cost more than a moment.
constexpr double kTightShare = 0.75;
constexpr double kWriteTightMs = 1000;
// Until a read was measured: a slow disk.
constexpr double kBytesPerMsAssumed = 300e3;

int64_t pages_for(int32_t tokens) {
    return (tokens + kPageTokens - 1) / kPageTokens;
}

// What may go for a new snapshot of this kind.
int32_t rank_below(PointKind kind) {
    switch (kind) {
        case PointKind::ladder: return 1;
        case PointKind::prompt_end:
        case PointKind::reply_end:
        case PointKind::inner_message: return 2;
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
      tree_(memory, index_bytes_max_),
      bytes_per_ms_(kBytesPerMsAssumed) {}

int64_t ConversationCache::used_bytes() const {
    const SlotPool& pages = memory_.pages();
    const SlotPool& states = memory_.states();
    const PrefixTree::Gauges tree = tree_.gauges();
    const int64_t n_states = std::max(tree.snapshots, states.n_slots() - states.n_free() - n_running_);
    return int64_t{pages.n_slots() - pages.n_free()} * static_cast<int64_t>(pages.slot_bytes()) +
           n_states * static_cast<int64_t>(states.slot_bytes()) + std::max<int64_t>(0, tree.index_bytes - index_bytes_max_);
}

bool ConversationCache::drop_one(const PrefixTree::VictimRules& rules) {
    const PrefixTree::Node* victim = tree_.find_victim(rules, options_.clock());
    if (victim == nullptr) return false;
    tree_.drop(*victim);
    ++evictions_;
    return true;
}

// What only waits to be written is not free yet. Rather than give up more, the writes that have not begun are given up: that
// loses nothing but time. The one in progress is waited for only by who must have the memory.
void ConversationCache::take_back_writes(PrefixTree::Need need) {
    DiskStore& store = *options_.store;
    if (store.drop_pending() > 0) {
        for (const PrefixTree::Node* node : tree_.snapshots()) tree_.set_stored(*node, false);
        has_unwritten_ = true;
    }
    store.collect_finished();
    if (need == PrefixTree::Need::must && store.waiting_bytes() > 0) store.flush();
}

bool ConversationCache::make_room_for(int64_t bytes, const PrefixTree::VictimRules& rules) {
    const int64_t limit = options_.bytes_max - index_bytes_max_;
    if (used_bytes() + bytes <= limit) return true;
    if (options_.store) options_.store->collect_finished();
    while (used_bytes() + bytes > limit) {
        const bool was_dropped = drop_one(rules);
        if (used_bytes() + bytes <= limit) break;
        const int64_t waiting_before = options_.store ? options_.store->waiting_bytes() : 0;
        if (waiting_before > 0) take_back_writes(rules.need);
        const bool was_taken_back = waiting_before > 0 && options_.store->waiting_bytes() < waiting_before;
        if (!was_dropped && !was_taken_back) return used_bytes() + bytes <= limit;
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

double ConversationCache::bytes_to_read(int32_t length) const {
    return static_cast<double>(pages_for(length)) * static_cast<double>(memory_.pages().slot_bytes()) +
           static_cast<double>(memory_.states().slot_bytes());
}

bool ConversationCache::is_worth_reading(int32_t length, int32_t cached) const {
    return length > cached && (length - cached) * ms_per_token_ >= bytes_to_read(length) / bytes_per_ms_;
}

std::optional<Sequence> ConversationCache::read_back(const CacheKey& key, std::span<const TokenId> prompt, int32_t cached,
                                                     int32_t context_tokens) {
    if (!options_.store) return std::nullopt;
    int32_t length = options_.store->find_longest(prompt, key);
    if (!is_worth_reading(length, cached)) return std::nullopt;
    // Nothing is given up for an entry that turns out to be damaged.
    const auto bytes_for = [this](int32_t tokens) {
        return (pages_for(tokens) + 1) * static_cast<int64_t>(memory_.pages().slot_bytes());
    };
    if (used_bytes() + bytes_for(length) > options_.bytes_max - index_bytes_max_) {
        length = options_.store->check_longest(prompt, key);
        if (!is_worth_reading(length, cached)) return std::nullopt;
    }
    if (!make_room(pages_for(length) + 1, key.owner)) return std::nullopt;
    const auto begin = std::chrono::steady_clock::now();
    auto restored = options_.store->restore_longest(prompt, key, context_tokens);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    if (!restored || !*restored || (*restored)->sequence.length() <= cached) return std::nullopt;
    if (!(*restored)->is_from_memory)
        bytes_per_ms_ = bytes_to_read((*restored)->sequence.length()) / std::max(elapsed.count(), 0.01);
    ++disk_reads_;
    Sequence sequence = std::move((*restored)->sequence);
    if (keep(key, sequence, (*restored)->kind)) tree_.set_stored(*tree_.find(key, sequence.tokens()), true);
    return sequence;
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
            if (!drop_one(rules)) return false;
        }
        if (!make_room_for(bytes, rules)) return false;
    }
    // Whoever keeps something may end in any way: it is written when the engine is idle.
    if (tree_.keep(key, sequence, kind, options_.clock())) has_unwritten_ = options_.store != nullptr;
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

bool ConversationCache::is_worth_writing(const PrefixTree::Node& node, Moment moment) const {
    if (PrefixTree::is_stored(node)) return false;
    if (moment == Moment::idle) return true;
    const bool is_tight = static_cast<double>(used_bytes()) > kTightShare * static_cast<double>(options_.bytes_max);
    const double ms_least = is_tight ? kWriteTightMs : kWriteMs;
    if (PrefixTree::length(node) * ms_per_token_ <= ms_least) return false;
    const std::vector<TokenId> ids = PrefixTree::ids(node);
    const int32_t stored = options_.store->find_longest(ids, PrefixTree::key(node));
    return (PrefixTree::length(node) - stored) * ms_per_token_ > ms_least;
}

DiskStore::Kept ConversationCache::write(const PrefixTree::Node& node) {
    const DiskStore::Kept kept =
        options_.store->keep(tree_.fork(node, PrefixTree::length(node)), PrefixTree::key(node), PrefixTree::kind(node));
    // What the store refuses is not offered again.
    if (kept != DiskStore::Kept::queue_full) tree_.set_stored(node, true);
    return kept;
}

void ConversationCache::write_behind(Moment moment) {
    has_unwritten_ = false;
    if (!options_.store) return;
    options_.store->collect_finished();
    if (!options_.store->gauges().is_writing) return;
    for (const PrefixTree::Node* node : tree_.tails(options_.clock())) {
        if (!is_worth_writing(*node, moment)) {
            has_unwritten_ = has_unwritten_ || !PrefixTree::is_stored(*node);
        } else if (write(*node) == DiskStore::Kept::queue_full) {
            has_unwritten_ = true;
            return;
        }
    }
}

void ConversationCache::finish_writing(int64_t ms_max) {
    if (!options_.store) return;
    const int64_t end_ms = options_.clock() + ms_max;
    do {
        write_behind(Moment::idle);
        options_.store->flush();
    } while (has_unwritten_ && options_.store->gauges().is_writing && options_.clock() < end_ms);
}

ConversationCache::Gauges ConversationCache::gauges() const {
    const PrefixTree::Gauges tree = tree_.gauges();
    Gauges gauges{
        used_bytes() + std::min(tree.index_bytes, index_bytes_max_), options_.bytes_max, evictions_, disk_reads_, tree, {}};
    if (options_.store) gauges.store = options_.store->gauges();
    return gauges;
}

}  // namespace espalier::cache
