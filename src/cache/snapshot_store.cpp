#include "cache/snapshot_store.h"

#include <algorithm>

namespace espalier::cache {

int32_t SnapshotStore::find_longest(std::span<const TokenId> prompt, const std::string& salt) {
    auto best = entries_.end();
    int32_t best_length = 0;
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        const auto tokens = entry->snapshot.tokens();
        if (entry->salt != salt || entry->snapshot.length() <= best_length || tokens.size() >= prompt.size()) continue;
        if (!std::equal(tokens.begin(), tokens.end(), prompt.begin())) continue;
        best = entry;
        best_length = entry->snapshot.length();
    }
    if (best != entries_.end()) entries_.splice(entries_.begin(), entries_, best);
    return best_length;
}

std::optional<Sequence> SnapshotStore::restore_longest(std::span<const TokenId> prompt, const std::string& salt) {
    if (find_longest(prompt, salt) == 0) return std::nullopt;
    return entries_.front().snapshot.restore();
}

void SnapshotStore::keep(const Sequence& sequence, const std::string& salt) {
    const auto tokens = sequence.tokens();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        if (entry->salt != salt || !std::ranges::equal(entry->snapshot.tokens(), tokens)) continue;
        entries_.splice(entries_.begin(), entries_, entry);
        return;
    }
    if (snapshots_max_ <= 0) return;
    if (size() >= snapshots_max_) drop_oldest();
    entries_.push_front({salt, Snapshot::take(sequence)});
}

bool SnapshotStore::drop_oldest() {
    if (entries_.empty()) return false;
    entries_.pop_back();
    return true;
}

int64_t SnapshotStore::bytes() const {
    int64_t bytes = 0;
    for (const Entry& entry : entries_) bytes += static_cast<int64_t>(entry.snapshot.exclusive_bytes());
    return bytes;
}

}  // namespace espalier::cache
