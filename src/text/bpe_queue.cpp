#include "text/bpe_queue.h"

#include <algorithm>
#include <functional>

namespace espalier::text {

void MergeQueue::push(Entry entry) {
    const uint64_t key = static_cast<uint64_t>(entry.rank) << 32 | entry.position;
    const size_t bucket = entry.rank / kRanksPerBucket;
    if (bucket >= n_opened_) {
        buckets_[bucket].push_back(key);
        return;
    }
    heap_.push_back(key);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void MergeQueue::open_next_bucket() {
    sorted_.clear();
    n_read_ = 0;
    while (sorted_.empty() && n_opened_ < buckets_.size()) sorted_.swap(buckets_[n_opened_++]);
    if (!std::is_sorted(sorted_.begin(), sorted_.end())) std::sort(sorted_.begin(), sorted_.end());
}

bool MergeQueue::pop(Entry& entry) {
    if (n_read_ == sorted_.size() && heap_.empty()) open_next_bucket();
    const bool has_sorted = n_read_ < sorted_.size();
    if (!has_sorted && heap_.empty()) return false;
    uint64_t key = 0;
    if (has_sorted && (heap_.empty() || sorted_[n_read_] < heap_.front())) {
        key = sorted_[n_read_++];
    } else {
        key = heap_.front();
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        heap_.pop_back();
    }
    entry = {static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(key)};
    return true;
}

}  // namespace espalier::text
