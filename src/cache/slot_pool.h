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

    // Slots whose memory the operating system has handed out: used at some time and not trimmed since.
    int32_t n_touched() const { return n_touched_; }
    // Returns the memory of up to n_slots free touched slots to the operating system, those freed longest ago first. Returns how
    // many.
    int32_t trim(int32_t n_slots);

    size_t slot_bytes() const { return slot_bytes_; }
    int32_t n_slots() const { return static_cast<int32_t>(references_.size()); }
    int32_t n_free() const { return static_cast<int32_t>(free_.size()); }

private:
    SlotPool() = default;
    Buffer memory_;
    size_t slot_bytes_ = 0;
    std::vector<int32_t> references_;
    std::vector<int32_t> free_;  // taken from the back
    std::vector<uint8_t> is_touched_;
    int32_t n_touched_ = 0;
};

}  // namespace espalier::cache
