#include "cache/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace espalier::cache {

Result<Memory> Memory::create(const StateShape& shape, const Limits& limits) {
    TRY_ASSIGN(SlotPool pages, SlotPool::create(limits.n_pages, shape.page_bytes()));
    TRY_ASSIGN(SlotPool states, SlotPool::create(limits.n_states, shape.state_bytes()));
    return Memory(shape, std::move(pages), std::move(states));
}

int64_t Memory::touched_bytes() const {
    return pages_.touched_bytes() + states_.touched_bytes();
}

void Memory::trim_for(int64_t n_pages, int64_t n_states, int64_t bytes) {
    const auto cold_bytes = [](const SlotPool& pool, int64_t n) {
        return std::max<int64_t>(0, n - pool.n_ready()) * static_cast<int64_t>(pool.slot_bytes());
    };
    const auto trim = [&](SlotPool& pool, int64_t n_wanted) {
        const int64_t excess = touched_bytes() + cold_bytes(pages_, n_pages) + cold_bytes(states_, n_states) - bytes;
        if (excess > 0 && pool.n_ready() > n_wanted) pool.trim(excess, static_cast<int32_t>(n_wanted));
    };
    trim(states_, n_states);
    trim(pages_, n_pages);
}

float* Memory::recurrent(int32_t state, int32_t layer) {
    return reinterpret_cast<float*>(states_.data(state)) + static_cast<size_t>(layer) * shape_.recurrent_floats_per_layer();
}

float* Memory::conv(int32_t state, int32_t layer) {
    const size_t recurrent_floats = static_cast<size_t>(shape_.n_recurrent_layers) * shape_.recurrent_floats_per_layer();
    return reinterpret_cast<float*>(states_.data(state)) + recurrent_floats +
           static_cast<size_t>(layer) * shape_.conv_floats_per_layer();
}

float* Memory::hidden(int32_t state) {
    return reinterpret_cast<float*>(states_.data(state)) + shape_.state_floats() - shape_.hidden;
}

Result<Sequence> Sequence::create(Memory& memory, int32_t context_tokens) {
    Sequence sequence(memory);
    sequence.context_tokens_ = context_tokens;
    sequence.state_ = memory.states().acquire();
    if (sequence.state_ < 0) {
        return exhausted(fmt::format("all {} sequence states are in use", memory.states().n_slots()));
    }
    std::memset(memory.states().data(sequence.state_), 0, memory.shape().state_bytes());
    sequence.pages_.reserve(static_cast<size_t>((context_tokens + kPageTokens - 1) / kPageTokens));
    sequence.tokens_.reserve(static_cast<size_t>(context_tokens));
    return sequence;
}

Sequence Sequence::assemble(Memory& memory, const Parts& parts) {
    const auto n_pages = (parts.tokens.size() + kPageTokens - 1) / kPageTokens;
    CHECK(parts.pages.size() == n_pages && parts.state >= 0, "a timeline is complete");
    Sequence sequence(memory);
    sequence.context_tokens_ = parts.context_tokens;
    sequence.pages_.reserve(static_cast<size_t>((parts.context_tokens + kPageTokens - 1) / kPageTokens));
    sequence.tokens_.reserve(static_cast<size_t>(parts.context_tokens));
    sequence.pages_.assign(parts.pages.begin(), parts.pages.end());
    sequence.tokens_.assign(parts.tokens.begin(), parts.tokens.end());
    sequence.state_ = parts.state;
    sequence.set_mtp_length(parts.mtp_length);
    return sequence;
}

Sequence::Sequence(Sequence&& other) noexcept
    : memory_(other.memory_),
      context_tokens_(other.context_tokens_),
      mtp_length_(std::exchange(other.mtp_length_, 0)),
      state_(std::exchange(other.state_, -1)),
      pages_(std::move(other.pages_)),
      tokens_(std::move(other.tokens_)) {
    other.pages_.clear();
    other.tokens_.clear();
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(context_tokens_, other.context_tokens_);
    std::swap(mtp_length_, other.mtp_length_);
    std::swap(state_, other.state_);
    std::swap(pages_, other.pages_);
    std::swap(tokens_, other.tokens_);
    return *this;
}

void Sequence::clear() {
    for (const int32_t page : pages_) memory_->pages().release(page);
    pages_.clear();
    if (state_ >= 0) memory_->states().release(state_);
    state_ = -1;
    tokens_.clear();
    mtp_length_ = 0;
}

void Sequence::set_mtp_length(int32_t slots) {
    CHECK(slots >= 0 && slots <= length(), "MTP slots follow committed tokens");
    mtp_length_ = slots;
}

Status Sequence::make_writable(int32_t begin, int32_t end) {
    if (end > context_tokens_) {
        return exhausted(fmt::format("{} tokens exceed the context of {}", end, context_tokens_));
    }
    SlotPool& pool = memory_->pages();
    const auto first = static_cast<size_t>(begin / kPageTokens);
    const auto count = static_cast<size_t>((end + kPageTokens - 1) / kPageTokens);
    for (size_t index = first; index < count; ++index) {
        const bool is_new = index >= pages_.size();
        if (!is_new && pool.references(pages_[index]) == 1) continue;
        const int32_t page = pool.acquire();
        if (page < 0) return exhausted(fmt::format("all {} KV pages are in use", pool.n_slots()));
        if (is_new) {
            pages_.push_back(page);
        } else {
            // Not what nobody has filled: an engine that does not draft never touches the memory of the MTP head's slots.
            const bool has_mtp_slots = mtp_length_ > static_cast<int32_t>(index) * kPageTokens;
            const StateShape& shape = memory_->shape();
            std::memcpy(pool.data(page), pool.data(pages_[index]), has_mtp_slots ? shape.page_bytes() : shape.trunk_page_bytes());
            pool.release(pages_[index]);
            pages_[index] = page;
        }
    }
    return {};
}

void Sequence::append(std::span<const TokenId> tokens, int32_t state) {
    CHECK(tokens_.size() + tokens.size() <= static_cast<size_t>(context_tokens_), "append beyond the context");
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    memory_->states().release(state_);
    state_ = state;
}

Sequence Sequence::fork(int32_t context_tokens) const {
    CHECK(context_tokens >= length(), "a fork holds what is there");
    Sequence copy(*memory_);
    copy.context_tokens_ = context_tokens;
    copy.mtp_length_ = mtp_length_;
    copy.state_ = state_;
    memory_->states().retain(state_);
    copy.pages_.reserve(static_cast<size_t>((context_tokens + kPageTokens - 1) / kPageTokens));
    copy.tokens_.reserve(static_cast<size_t>(context_tokens));
    // Only pages with committed content: writable ones beyond it stay with their owner.
    const auto n_pages = static_cast<size_t>((length() + kPageTokens - 1) / kPageTokens);
    copy.pages_.assign(pages_.begin(), pages_.begin() + static_cast<std::ptrdiff_t>(n_pages));
    for (const int32_t page : copy.pages_) memory_->pages().retain(page);
    copy.tokens_ = tokens_;
    return copy;
}

size_t Snapshot::exclusive_bytes() const {
    const Memory& memory = sequence_.memory();
    size_t bytes = memory.states().references(sequence_.state()) == 1 ? memory.shape().state_bytes() : 0;
    const int32_t n_pages = (length() + kPageTokens - 1) / kPageTokens;
    for (int32_t index = 0; index < n_pages; ++index) {
        if (memory.pages().references(sequence_.page(index)) == 1) bytes += memory.shape().page_bytes();
    }
    return bytes;
}

}  // namespace espalier::cache
