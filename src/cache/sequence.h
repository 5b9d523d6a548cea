// What a sequence remembers, and the only four things it can do: append, snapshot, restore, fork (law 3).
//
// Committed state is immutable and shared by reference: KV pages of 64 tokens and one state slot (recurrent states, conv
// columns, last hidden row). A forward pass writes a fresh state slot and then hands it over, so a snapshot is a handful
// of reference counts, not a copy, and a reader can never see a half-written state. A page is copied before the first
// write only when somebody else holds it too (copy on write at any token, inside a page as well).
//
// Everything here belongs to the engine thread. Pools must outlive sequences and snapshots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/shape.h"
#include "cache/slot_pool.h"

namespace espalier::cache {

// The memory of all sequences of one engine.
class Memory {
public:
    struct Limits {
        int32_t n_pages = 0;
        int32_t n_states = 0;
    };
    // Errors: exhausted.
    static Result<Memory> create(const StateShape& shape, const Limits& limits);

    const StateShape& shape() const { return shape_; }
    SlotPool& pages() { return pages_; }
    const SlotPool& pages() const { return pages_; }
    SlotPool& states() { return states_; }
    const SlotPool& states() const { return states_; }

    // Memory of both pools that the operating system has handed out.
    int64_t touched_bytes() const;
    // Sees to it that n_pages more pages and n_states more states can be acquired with at most `bytes` handed out in all: returns
    // memory of free slots of the other kind where new ones would be touched.
    void trim_for(int64_t n_pages, int64_t n_states, int64_t bytes);

    // Blocks inside a page, see kernels/attention/attention.h for their layout.
    std::byte* k_block(int32_t page, int32_t layer, int32_t head) { return pages_.data(page) + block_offset(layer, head, 0); }
    std::byte* v_block(int32_t page, int32_t layer, int32_t head) { return pages_.data(page) + block_offset(layer, head, 1); }

    float* recurrent(int32_t state, int32_t layer);  // [n_value_heads][key_dim][value_dim]
    float* conv(int32_t state, int32_t layer);       // [kConvColumns][conv_channels], oldest first
    float* hidden(int32_t state);                    // [hidden]

private:
    Memory(const StateShape& shape, SlotPool pages, SlotPool states)
        : shape_(shape), pages_(std::move(pages)), states_(std::move(states)) {}
    size_t block_offset(int32_t layer, int32_t head, int32_t is_v) const {
        return ((static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) + static_cast<size_t>(head)) * 2 +
                static_cast<size_t>(is_v)) *
               shape_.block_bytes();
    }
    StateShape shape_;
    SlotPool pages_;
    SlotPool states_;
};

// One timeline of committed tokens. Move-only; releases its references when destroyed.
class Sequence {
public:
    // An empty sequence that can grow to context_tokens. Errors: exhausted when no state slot is free.
    static Result<Sequence> create(Memory& memory, int32_t context_tokens);
    // A timeline put together from its parts: takes over one reference to every page and to the state.
    struct Parts {
        std::span<const TokenId> tokens;
        std::span<const int32_t> pages;  // ceil(tokens / 64)
        int32_t state = -1;
        int32_t mtp_length = 0;
        int32_t context_tokens = 0;
    };
    static Sequence assemble(Memory& memory, const Parts& parts);
    Sequence(Sequence&& other) noexcept;
    Sequence& operator=(Sequence&& other) noexcept;
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;
    ~Sequence() { clear(); }

    int32_t length() const { return static_cast<int32_t>(tokens_.size()); }
    std::span<const TokenId> tokens() const { return tokens_; }
    int32_t context_tokens() const { return context_tokens_; }
    // Slots of the MTP layer that are valid: 0 .. mtp_length-1. At most length.
    int32_t mtp_length() const { return mtp_length_; }
    void set_mtp_length(int32_t slots);
    Memory& memory() const { return *memory_; }

    // Page holding positions [64 * index, 64 * index + 64).
    int32_t page(int32_t index) const { return pages_[static_cast<size_t>(index)]; }
    int32_t n_pages() const { return static_cast<int32_t>(pages_.size()); }
    int32_t state() const { return state_; }

    // Makes positions [begin, end) writable: pages exist and are held by this sequence alone. Committed keys of a shared page are
    // copied with it. Allocates no memory. Errors: exhausted when the pool has no free page (nothing is changed that matters:
    // the committed content is the same) or end exceeds the context.
    Status make_writable(int32_t begin, int32_t end);

    // Appends tokens whose keys and values are already in the pages, with the state after the last of them; takes over one
    // reference to `state` and releases the old one. No allocation.
    void append(std::span<const TokenId> tokens, int32_t state);

    // The same timeline again: shares everything committed, then goes its own way.
    Sequence fork() const { return fork(context_tokens_); }
    // The same with room for context_tokens, at least length().
    Sequence fork(int32_t context_tokens) const;

private:
    explicit Sequence(Memory& memory) : memory_(&memory) {}
    void clear();
    friend class Snapshot;

    Memory* memory_ = nullptr;
    int32_t context_tokens_ = 0;
    int32_t mtp_length_ = 0;
    int32_t state_ = -1;
    std::vector<int32_t> pages_;
    std::vector<TokenId> tokens_;
};

// A complete picture of a sequence at one length. Copyless: holds references. Immutable.
class Snapshot {
public:
    // Of the committed content of `sequence`.
    static Snapshot take(const Sequence& sequence) { return Snapshot(sequence.fork()); }

    int32_t length() const { return sequence_.length(); }
    std::span<const TokenId> tokens() const { return sequence_.tokens(); }
    // A sequence that continues from here.
    Sequence restore() const { return sequence_.fork(); }
    // Bytes that would become free if only this snapshot held them: its state slot, and its pages held by nobody else.
    size_t exclusive_bytes() const;

private:
    explicit Snapshot(Sequence sequence) : sequence_(std::move(sequence)) {}
    Sequence sequence_;
};

}  // namespace espalier::cache
