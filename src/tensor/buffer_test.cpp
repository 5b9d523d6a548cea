#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace espalier {
namespace {

TEST(Buffer, IsZeroedAndAligned) {
    for (const size_t bytes : {size_t{1}, size_t{4095}, size_t{4097}, size_t{2} << 20, (size_t{2} << 20) + 1}) {
        auto buffer = Buffer::allocate(bytes);
        ASSERT_TRUE(buffer);
        EXPECT_EQ(buffer->bytes(), bytes);
        const size_t alignment = bytes >= (size_t{2} << 20) ? size_t{2} << 20 : 4096;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % alignment, 0u) << bytes;
        EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
        buffer->data()[bytes - 1] = std::byte{1};
    }
}

TEST(Buffer, NoBytesIsNoMemory) {
    auto buffer = Buffer::allocate(0);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->bytes(), 0u);
    EXPECT_EQ(buffer->data(), nullptr);
}

TEST(Buffer, MovesItsMemory) {
    auto first = Buffer::allocate(16);
    ASSERT_TRUE(first);
    int32_t* data = first->as<int32_t>();
    data[3] = 7;
    Buffer second = *std::move(first);
    EXPECT_EQ(second.as<int32_t>(), data);
    Buffer third;
    third = std::move(second);
    EXPECT_EQ(third.as<int32_t>()[3], 7);
    EXPECT_EQ(std::as_const(third).bytes(), 16u);
}

TEST(Buffer, TooMuchIsAnError) {
    for (const size_t bytes : {SIZE_MAX, SIZE_MAX - (size_t{3} << 20), SIZE_MAX / 2}) {
        const auto buffer = Buffer::allocate(bytes);
        ASSERT_FALSE(buffer);
        EXPECT_EQ(buffer.error().code, ErrorCode::exhausted);
        EXPECT_NE(buffer.error().message.find(std::to_string(bytes)), std::string::npos);
    }
}

}  // namespace
}  // namespace espalier
