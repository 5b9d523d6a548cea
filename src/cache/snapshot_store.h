// The snapshots an engine keeps, by salt and content: a new prompt continues from the longest one that is a true prefix of it
// (token ids compared). A plain list in order of use; the prefix tree replaces it without changing what a hit is.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>

#include "cache/sequence.h"

namespace espalier::cache {

class SnapshotStore {
public:
    explicit SnapshotStore(int32_t snapshots_max) : snapshots_max_(snapshots_max) {}

    // Length of the longest snapshot of `salt` whose tokens are a proper prefix of `prompt`, 0 if there is none. It counts as
    // used now.
    int32_t find_longest(std::span<const TokenId> prompt, const std::string& salt);
    // A sequence restored from that snapshot.
    std::optional<Sequence> restore_longest(std::span<const TokenId> prompt, const std::string& salt);
    // Takes a snapshot of the sequence, unless the same tokens are kept already (then that one counts as used now). Drops the one
    // unused for longest when full.
    void keep(const Sequence& sequence, const std::string& salt);
    // Drops the snapshot unused for longest; false if there is none.
    bool drop_oldest();
    int32_t size() const { return static_cast<int32_t>(entries_.size()); }
    int64_t bytes() const;

private:
    struct Entry {
        std::string salt;
        Snapshot snapshot;
    };
    int32_t snapshots_max_;
    std::list<Entry> entries_;  // most recently used first
};

}  // namespace espalier::cache
