// Reference-counted slots of equal size in one block of memory reserved at load: the common part of the KV page pool and the
// state pool. The id is the slot's index. Owned and used by the engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "tensor/buffer.h"

namespace espalier::cache {

class SlotPool {
public:
    // Reserves n_slots * slot_bytes (rounded up to 64). Memory is committed on first touch. Errors: exhausted.
    static Result<SlotPool> create(int32_t n_slots, size_t slot_bytes);

    // A free slot with one reference, contents unspecified; -1 if none is left.
    int32_t acquire();
    void retain(int32_t slot);
    // Drops one reference; the slot is free when none is left.
    void release(int32_t slot);
    int32_t references(int32_t slot) const { return references_[static_cast<size_t>(slot)]; }

    std::byte* data(int32_t slot) { return memory_.data() + static_cast<size_t>(slot) * slot_bytes_; }
    const std::byte* data(int32_t slot) const { return memory_.data() + static_cast<size_t>(slot) * slot_bytes_; }

    // Memory that the operating system has handed out. It comes and goes in extents: large enough that huge pages stay whole,
    // since the kernel fills holes in them up again.
    int64_t touched_bytes() const { return n_touched_extents_ * static_cast<int64_t>(extent_bytes_); }
    // Free slots whose memory is there: they are acquired first.
    int32_t n_ready() const { return n_free() - n_cold_; }
    // Returns memory that only free slots use, at least `bytes` if there is so much; those freed last keep theirs, as many as
    // n_kept.
    void trim(int64_t bytes, int32_t n_kept);

    size_t slot_bytes() const { return slot_bytes_; }
    int32_t n_slots() const { return static_cast<int32_t>(references_.size()); }
    int32_t n_free() const { return static_cast<int32_t>(free_.size()); }

private:
    SlotPool() = default;
    Buffer memory_;
    size_t slot_bytes_ = 0;
    std::vector<int32_t> references_;
    std::vector<int32_t> free_;  // taken from the back; the first n_cold_ have no memory
    int32_t n_cold_ = 0;

    struct Extent {
        int32_t slots_in_use = 0;
        bool is_touched = false;
    };
    struct Range {
        size_t begin = 0;
        size_t end = 0;
    };
    Range extents_of(int32_t slot) const;
    size_t extent_bytes_ = 0;
    std::vector<Extent> extents_;
    int64_t n_touched_extents_ = 0;
};

}  // namespace espalier::cache
