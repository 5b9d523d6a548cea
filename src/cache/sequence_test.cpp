#include "cache/sequence.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cache/test_shape.h"

namespace espalier::cache {
namespace {

Memory small_memory(int32_t n_pages = 8, int32_t n_states = 8) {
    auto memory = Memory::create(small_shape(), {n_pages, n_states});
    EXPECT_TRUE(memory.has_value());
    return std::move(*memory);
}

// Appends n tokens the way a pass does: writable pages, a marked state.
void grow(Sequence& sequence, int32_t n, float mark) {
    Memory& memory = sequence.memory();
    const int32_t begin = sequence.length();
    ASSERT_TRUE(sequence.make_writable(begin, begin + n).has_value());
    for (int32_t position = begin; position < begin + n; ++position) {
        auto* v = reinterpret_cast<float*>(memory.v_block(sequence.page(position / kPageTokens), 1, 0));
        v[position % kPageTokens * 16] = mark + static_cast<float>(position);
    }
    const int32_t state = memory.states().acquire();
    ASSERT_GE(state, 0);
    *memory.recurrent(state, 0) = mark;
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = begin + i;
    sequence.append(tokens, state);
}

float value_at(Sequence& sequence, int32_t position) {
    return reinterpret_cast<float*>(
        sequence.memory().v_block(sequence.page(position / kPageTokens), 1, 0))[position % kPageTokens * 16];
}

TEST(SlotPool, HandsOutEverySlotOnceAndTakesItBack) {
    auto pool = SlotPool::create(3, 100);
    ASSERT_TRUE(pool.has_value());
    EXPECT_EQ(pool->slot_bytes() % 64, 0u);
    const int32_t a = pool->acquire();
    const int32_t b = pool->acquire();
    const int32_t c = pool->acquire();
    EXPECT_NE(a, b);
    EXPECT_NE(b, c);
    EXPECT_EQ(pool->acquire(), -1);
    pool->retain(b);
    pool->release(b);
    EXPECT_EQ(pool->acquire(), -1) << "one reference is left";
    pool->release(b);
    EXPECT_EQ(pool->acquire(), b);
}

TEST(SlotPool, RefusesAnImpossibleSize) {
    const auto pool = SlotPool::create(1 << 30, size_t{1} << 40);
    ASSERT_FALSE(pool.has_value());
    EXPECT_EQ(pool.error().code, ErrorCode::exhausted);
}

TEST(Sequence, ForkSharesUntilSomebodyWrites) {
    Memory memory = small_memory();
    auto sequence = Sequence::create(memory, 256);
    ASSERT_TRUE(sequence.has_value());
    grow(*sequence, 70, 1000);
    const int32_t free_before = memory.pages().n_free();
    Sequence fork = sequence->fork();
    EXPECT_EQ(memory.pages().n_free(), free_before) << "a fork copies nothing";
    EXPECT_EQ(fork.page(1), sequence->page(1));
    grow(fork, 1, 2000);
    EXPECT_EQ(fork.page(0), sequence->page(0)) << "the full page stays shared";
    EXPECT_NE(fork.page(1), sequence->page(1)) << "the partial page was copied";
    EXPECT_EQ(value_at(fork, 69), 1069) << "with its committed content";
    grow(*sequence, 1, 3000);
    EXPECT_EQ(value_at(fork, 70), 2070);
    EXPECT_EQ(value_at(*sequence, 70), 3070);
    EXPECT_EQ(*memory.recurrent(fork.state(), 0), 2000);
    EXPECT_EQ(*memory.recurrent(sequence->state(), 0), 3000);
}

// A copied page takes the MTP head's slots along if there are any; else their memory stays untouched.
TEST(Sequence, CopiesTheMtpHeadsSlotsOnlyWhenTheyAreFilled) {
    StateShape shape = small_shape();
    shape.has_mtp_layer = true;
    auto memory = Memory::create(shape, {8, 8});
    ASSERT_TRUE(memory.has_value());
    const auto mtp_slot = [&](Sequence& sequence, int32_t page) {
        return reinterpret_cast<float*>(memory->v_block(sequence.page(page), 1, 0));
    };
    auto sequence = Sequence::create(*memory, 256);
    ASSERT_TRUE(sequence.has_value());
    grow(*sequence, 100, 1000);
    auto* trunk = reinterpret_cast<float*>(memory->v_block(sequence->page(1), 0, 0));
    trunk[0] = 5;
    for (int32_t page = 0; page < 2; ++page) *mtp_slot(*sequence, page) = 7;
    sequence->set_mtp_length(64);
    Sequence before_any = sequence->fork();
    ASSERT_TRUE(before_any.make_writable(64, 101).has_value());
    ASSERT_NE(before_any.page(1), sequence->page(1));
    EXPECT_EQ(*reinterpret_cast<float*>(memory->v_block(before_any.page(1), 0, 0)), 5);
    EXPECT_EQ(*mtp_slot(before_any, 1), 0);
    sequence->set_mtp_length(65);
    Sequence with_one = sequence->fork();
    ASSERT_TRUE(with_one.make_writable(64, 101).has_value());
    EXPECT_EQ(*mtp_slot(with_one, 1), 7);
}

TEST(Sequence, EverythingIsFreeAfterTheLastOwner) {
    Memory memory = small_memory();
    {
        auto sequence = Sequence::create(memory, 256);
        grow(*sequence, 100, 1);
        const Snapshot snapshot = Snapshot::take(*sequence);
        Sequence restored = snapshot.restore();
        grow(restored, 5, 2);
        Sequence moved = std::move(restored);
        EXPECT_EQ(moved.length(), 105);
    }
    EXPECT_EQ(memory.pages().n_free(), memory.pages().n_slots());
    EXPECT_EQ(memory.states().n_free(), memory.states().n_slots());
}

TEST(Sequence, ReportsWhatIsExhausted) {
    Memory memory = small_memory(1, 1);
    auto sequence = Sequence::create(memory, 256);
    ASSERT_TRUE(sequence.has_value());
    EXPECT_FALSE(Sequence::create(memory, 256).has_value()) << "no state left";
    const Status pages = sequence->make_writable(0, 65);
    ASSERT_FALSE(pages.has_value());
    EXPECT_EQ(pages.error().code, ErrorCode::exhausted);
    const Status context = sequence->make_writable(0, 257);
    ASSERT_FALSE(context.has_value());
    EXPECT_NE(context.error().message.find("256"), std::string::npos);
}

TEST(Snapshot, CountsOnlyWhatItAloneHolds) {
    Memory memory = small_memory();
    auto sequence = Sequence::create(memory, 256);
    grow(*sequence, 10, 1);
    const Snapshot snapshot = Snapshot::take(*sequence);
    EXPECT_EQ(snapshot.exclusive_bytes(), 0u);
    grow(*sequence, 1, 2);
    EXPECT_EQ(snapshot.exclusive_bytes(), memory.shape().state_bytes() + memory.shape().page_bytes());
}

TEST(SlotPool, TrimReturnsMemoryOfFreeSlotsOnly) {
    auto pool = SlotPool::create(4, 8192);
    ASSERT_TRUE(pool.has_value());
    const int32_t a = pool->acquire();
    const int32_t b = pool->acquire();
    std::memset(pool->data(a), 7, 8192);
    std::memset(pool->data(b), 9, 8192);
    EXPECT_EQ(pool->touched_bytes(), 2 * 8192);
    pool->release(a);
    EXPECT_EQ(pool->n_ready(), 1);
    pool->trim(1 << 20, 1);
    EXPECT_EQ(pool->touched_bytes(), 2 * 8192) << "one is to be kept";
    pool->trim(1 << 20, 0);
    EXPECT_EQ(pool->touched_bytes(), 8192);
    EXPECT_EQ(pool->n_ready(), 0);
    EXPECT_EQ(pool->data(b)[8191], std::byte{9}) << "a used slot keeps its content";
    EXPECT_EQ(pool->data(a)[0], std::byte{0}) << "the memory was given back";
    pool->acquire();
    EXPECT_EQ(pool->touched_bytes(), 2 * 8192);
}

// Slots of 768 KiB in extents of 2 MiB: an extent goes only when nothing in it is used.
TEST(SlotPool, LargeSlotsKeepHugePagesWhole) {
    constexpr int64_t kHuge = int64_t{2} << 20;
    auto pool = SlotPool::create(8, 768 << 10);
    ASSERT_TRUE(pool.has_value());
    std::vector<int32_t> slots;
    for (int i = 0; i < 8; ++i) slots.push_back(pool->acquire());
    EXPECT_EQ(pool->touched_bytes(), 3 * kHuge);
    for (int i = 0; i < 8; ++i) std::memset(pool->data(i), i + 1, 768 << 10);
    for (const int slot : {0, 1, 3, 4}) pool->release(slot);
    pool->trim(1 << 30, 0);
    EXPECT_EQ(pool->touched_bytes(), 3 * kHuge) << "slots 2 and 5 reach into all of them";
    pool->release(2);
    pool->trim(1 << 30, 0);
    EXPECT_EQ(pool->touched_bytes(), 2 * kHuge);
    for (const int slot : {5, 6, 7}) EXPECT_EQ(pool->data(slot)[100], std::byte(slot + 1));
    EXPECT_EQ(pool->n_ready(), 2) << "3 and 4";
    EXPECT_GE(pool->acquire(), 3) << "slots with memory come first";
}

TEST(Memory, FreeSlotsOfOneKindMakeRoomForTheOther) {
    Memory memory = small_memory(8, 64);
    const auto page = static_cast<int64_t>(memory.pages().slot_bytes());
    const int64_t state = 4096;  // a smaller state takes a whole page of the system
    std::vector<int32_t> pages;
    for (int i = 0; i < 6; ++i) pages.push_back(memory.pages().acquire());
    for (int i = 0; i < 4; ++i) memory.pages().release(pages[static_cast<size_t>(i)]);
    EXPECT_EQ(memory.touched_bytes(), 6 * page);
    memory.trim_for(4, 0, 6 * page);
    EXPECT_EQ(memory.touched_bytes(), 6 * page) << "the free ones are used again";
    memory.trim_for(1, 3, 6 * page);
    EXPECT_LE(memory.touched_bytes() + 3 * state, 6 * page);
    EXPECT_GE(memory.touched_bytes(), 3 * page) << "two in use, one wanted";
    memory.trim_for(0, 0, 0);
    EXPECT_EQ(memory.touched_bytes(), 2 * page) << "used slots keep their memory";
}

}  // namespace
}  // namespace espalier::cache
