#include "cache/slot_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/check.h"

namespace espalier::cache {

Result<SlotPool> SlotPool::create(int32_t n_slots, size_t slot_bytes) {
    CHECK(n_slots >= 0, "a pool has no negative size");
    SlotPool pool;
    pool.slot_bytes_ = (slot_bytes + 63) / 64 * 64;
    if (pool.slot_bytes_ > 0 && static_cast<size_t>(n_slots) > SIZE_MAX / 2 / pool.slot_bytes_) {
        return exhausted(fmt::format("cannot reserve {} slots of {} bytes", n_slots, pool.slot_bytes_));
    }
    TRY_ASSIGN(pool.memory_, Buffer::allocate(static_cast<size_t>(n_slots) * pool.slot_bytes_));
    pool.references_.assign(static_cast<size_t>(n_slots), 0);
    pool.is_touched_.assign(static_cast<size_t>(n_slots), 0);
    pool.free_.reserve(static_cast<size_t>(n_slots));
    // Low ids first, so that a lightly used pool touches little memory.
    for (int32_t slot = n_slots - 1; slot >= 0; --slot) pool.free_.push_back(slot);
    return pool;
}

int32_t SlotPool::acquire() {
    if (free_.empty()) return -1;
    const int32_t slot = free_.back();
    free_.pop_back();
    references_[static_cast<size_t>(slot)] = 1;
    if (is_touched_[static_cast<size_t>(slot)] == 0) {
        is_touched_[static_cast<size_t>(slot)] = 1;
        ++n_touched_;
    }
    return slot;
}

int32_t SlotPool::trim(int32_t n_slots) {
    constexpr uintptr_t kOsPage = 4096;
    int32_t n_trimmed = 0;
    for (size_t i = 0; i < free_.size() && n_trimmed < n_slots; ++i) {
        const int32_t slot = free_[i];
        if (is_touched_[static_cast<size_t>(slot)] == 0) continue;
        // Whole pages inside the slot: what it shares with its neighbours stays.
        const auto begin = (reinterpret_cast<uintptr_t>(data(slot)) + kOsPage - 1) / kOsPage * kOsPage;
        const auto end = (reinterpret_cast<uintptr_t>(data(slot)) + slot_bytes_) / kOsPage * kOsPage;
        if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
        is_touched_[static_cast<size_t>(slot)] = 0;
        --n_touched_;
        ++n_trimmed;
    }
    return n_trimmed;
}

void SlotPool::retain(int32_t slot) {
    CHECK(references_[static_cast<size_t>(slot)] > 0, "retain of a free slot");
    ++references_[static_cast<size_t>(slot)];
}

void SlotPool::release(int32_t slot) {
    CHECK(references_[static_cast<size_t>(slot)] > 0, "release of a free slot");
    if (--references_[static_cast<size_t>(slot)] == 0) free_.push_back(slot);
}

}  // namespace espalier::cache
