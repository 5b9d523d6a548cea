// Sequences whose content says which tokens it was made from, for tests of everything that shares, keeps and restores them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>

#include "cache/sequence.h"
#include "cache/test_shape.h"

namespace espalier::cache::testing {

inline StateShape timeline_shape() {
    return small_shape(8, 16);
}

// A number that depends on all tokens so far, as a recurrent state does.
inline float fold(float before, TokenId token) {
    auto bits = static_cast<uint32_t>(before) * 31 + static_cast<uint32_t>(token) + 1;
    bits ^= bits >> 11;
    return static_cast<float>(bits & 0xfffff);
}

// Appends tokens the way a pass does: writable pages first, then keys and values, then a fresh state.
inline void grow(Sequence& sequence, std::span<const TokenId> tokens) {
    if (tokens.empty()) return;
    Memory& memory = sequence.memory();
    const int32_t begin = sequence.length();
    ASSERT_TRUE(sequence.make_writable(begin, begin + static_cast<int32_t>(tokens.size())).has_value());
    float value = begin == 0 ? 0.0f : *memory.recurrent(sequence.state(), 0);
    for (size_t i = 0; i < tokens.size(); ++i) {
        const int32_t position = begin + static_cast<int32_t>(i);
        value = fold(value, tokens[i]);
        auto* v = reinterpret_cast<float*>(memory.v_block(sequence.page(position / kPageTokens), 1, 0));
        v[position % kPageTokens * 16] = value;
    }
    const int32_t state = memory.states().acquire();
    ASSERT_GE(state, 0);
    *memory.recurrent(state, 0) = value;
    *memory.hidden(state) = value;
    sequence.append(tokens, state);
}

// True if state and every page hold what these tokens give.
inline bool holds(Sequence& sequence, std::span<const TokenId> tokens) {
    Memory& memory = sequence.memory();
    if (!std::equal(sequence.tokens().begin(), sequence.tokens().end(), tokens.begin(), tokens.end())) return false;
    float value = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        value = fold(value, tokens[i]);
        const auto position = static_cast<int32_t>(i);
        const auto* v = reinterpret_cast<float*>(memory.v_block(sequence.page(position / kPageTokens), 1, 0));
        if (v[position % kPageTokens * 16] != value) return false;
    }
    return *memory.recurrent(sequence.state(), 0) == value && *memory.hidden(sequence.state()) == value;
}

}  // namespace espalier::cache::testing
