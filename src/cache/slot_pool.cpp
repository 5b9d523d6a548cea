#include "cache/slot_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"

namespace espalier::cache {
namespace {

constexpr size_t kOsPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
// Smaller slots do not gain from huge pages, which would tie many of them together.
constexpr size_t kHugeSlotBytes = size_t{512} << 10;

}  // namespace

Result<SlotPool> SlotPool::create(int32_t n_slots, size_t slot_bytes) {
    CHECK(n_slots >= 0, "a pool has no negative size");
    SlotPool pool;
    pool.slot_bytes_ = (slot_bytes + 63) / 64 * 64;
    if (pool.slot_bytes_ > 0 && static_cast<size_t>(n_slots) > SIZE_MAX / 2 / pool.slot_bytes_) {
        return exhausted(fmt::format("cannot reserve {} slots of {} bytes", n_slots, pool.slot_bytes_));
    }
    TRY_ASSIGN(pool.memory_, Buffer::allocate(static_cast<size_t>(n_slots) * pool.slot_bytes_));
    pool.references_.assign(static_cast<size_t>(n_slots), 0);
    pool.extent_bytes_ = pool.slot_bytes_ >= kHugeSlotBytes ? kHugePage : kOsPage;
    pool.extents_.resize((pool.memory_.bytes() + pool.extent_bytes_ - 1) / pool.extent_bytes_);
    if (pool.extent_bytes_ == kOsPage && pool.memory_.bytes() > 0)
        ::madvise(pool.memory_.data(), pool.memory_.bytes(), MADV_NOHUGEPAGE);
    pool.free_.reserve(static_cast<size_t>(n_slots));
    // Low ids first, so that a lightly used pool touches little memory.
    for (int32_t slot = n_slots - 1; slot >= 0; --slot) pool.free_.push_back(slot);
    pool.n_cold_ = n_slots;
    return pool;
}

SlotPool::Range SlotPool::extents_of(int32_t slot) const {
    const size_t begin = static_cast<size_t>(slot) * slot_bytes_;
    return {begin / extent_bytes_, (begin + slot_bytes_ + extent_bytes_ - 1) / extent_bytes_};
}

int32_t SlotPool::acquire() {
    if (free_.empty()) return -1;
    const int32_t slot = free_.back();
    free_.pop_back();
    n_cold_ = std::min(n_cold_, n_free());
    references_[static_cast<size_t>(slot)] = 1;
    const Range range = extents_of(slot);
    for (size_t i = range.begin; i < range.end; ++i) {
        ++extents_[i].slots_in_use;
        if (extents_[i].is_touched) continue;
        extents_[i].is_touched = true;
        ++n_touched_extents_;
    }
    return slot;
}

void SlotPool::trim(int64_t bytes, int32_t n_kept) {
    const int64_t target = touched_bytes() - bytes;
    for (int32_t at = n_cold_; at < n_free() - n_kept && touched_bytes() > target; ++at) {
        const Range range = extents_of(free_[static_cast<size_t>(at)]);
        for (size_t i = range.begin; i < range.end; ++i) {
            if (!extents_[i].is_touched || extents_[i].slots_in_use > 0) continue;
            const size_t begin = i * extent_bytes_;
            ::madvise(memory_.data() + begin, std::min(extent_bytes_, memory_.bytes() - begin), MADV_DONTNEED);
            extents_[i].is_touched = false;
            --n_touched_extents_;
        }
    }
    const auto is_cold = [this](int32_t slot) {
        const Range range = extents_of(slot);
        return std::any_of(extents_.begin() + static_cast<std::ptrdiff_t>(range.begin),
                           extents_.begin() + static_cast<std::ptrdiff_t>(range.end),
                           [](const Extent& e) { return !e.is_touched; });
    };
    n_cold_ = static_cast<int32_t>(std::partition(free_.begin() + n_cold_, free_.end(), is_cold) - free_.begin());
}

void SlotPool::retain(int32_t slot) {
    CHECK(references_[static_cast<size_t>(slot)] > 0, "retain of a free slot");
    ++references_[static_cast<size_t>(slot)];
}

void SlotPool::release(int32_t slot) {
    CHECK(references_[static_cast<size_t>(slot)] > 0, "release of a free slot");
    if (--references_[static_cast<size_t>(slot)] > 0) return;
    free_.push_back(slot);
    const Range range = extents_of(slot);
    for (size_t i = range.begin; i < range.end; ++i) --extents_[i].slots_in_use;
}

}  // namespace espalier::cache
