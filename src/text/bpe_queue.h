// The pending merges of a long piece, lowest (rank, position) first.
//
// A merge makes pairs that nearly always rank behind it, so the queue is a row of buckets by rank: each is sorted when its turn
// comes and read off in order. The rare entry that ranks inside or before the bucket being read goes to a small heap. A plain
// heap of a million entries misses the cache at every level; this reads memory in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::text {

class MergeQueue {
public:
    struct Entry {
        uint32_t rank = 0;
        uint32_t position = 0;
    };

    // Ranks are below n_ranks.
    explicit MergeQueue(size_t n_ranks) : buckets_(n_ranks / kRanksPerBucket + 1) {}

    void push(Entry entry);
    // False when empty.
    bool pop(Entry& entry);

private:
    static constexpr size_t kRanksPerBucket = 256;
    void open_next_bucket();

    std::vector<std::vector<uint64_t>> buckets_;  // rank << 32 | position
    size_t n_opened_ = 0;
    std::vector<uint64_t> sorted_;  // the bucket being read
    size_t n_read_ = 0;
    std::vector<uint64_t> heap_;  // entries that belong to opened buckets
};

}  // namespace espalier::text
