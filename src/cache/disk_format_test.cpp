#include "cache/disk_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <functional>

#include "cache/disk_io.h"

namespace espalier::cache {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
}

StateFront example() {
    StateFront front;
    front.identity = {"demo", "m1", "t1", "a8", "bf16", "avx2-1"};
    front.key = {{1, 2}, {3, 4}};
    front.conversation = 7;
    front.page_bytes = 5000;
    front.state_bytes = 600;
    front.created_unix_ms = 1234;
    front.mtp_length = 129;
    front.kind = PointKind::branch;
    front.pages = {{0, 64, 11}, {5, 64, 12}, {kInlineRecord, 1, 13}};
    for (TokenId token = 0; token < 130; ++token) front.tokens.push_back(token * 3);
    return front;
}

// With the checksum put right: what an unlucky or clever writer could leave.
std::string with_checksum(std::string bytes) {
    uint64_t seed = 0;
    std::memcpy(&seed, bytes.data() + 8, sizeof seed);
    const uint64_t checksum = XXH3_64bits_withSeed(bytes.data() + 24, bytes.size() - 24, seed);
    std::memcpy(bytes.data() + 16, &checksum, sizeof checksum);
    return bytes;
}

TEST(DiskFormat, AFrontComesBackAsItWas) {
    const StateFront front = example();
    const std::string bytes = encode_state_front(front);
    EXPECT_EQ(*state_front_bytes(bytes_of(bytes).first(kStatePrefixBytes), "x"), bytes.size());
    const auto read = parse_state_front(bytes_of(bytes), "x");
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(encode_state_front(*read), bytes);
    EXPECT_EQ(read->tokens, front.tokens);
    EXPECT_EQ(read->kind, PointKind::branch);
    EXPECT_EQ(read->identity.kernels, "avx2-1");
    EXPECT_EQ(read->state_offset(), 4096u);
    EXPECT_EQ(read->inline_offset(0), 8192u);
    EXPECT_EQ(read->file_bytes(), 8192u + 8192u);
}

TEST(DiskFormat, EveryLengthButTheWholeIsRefused) {
    const std::string bytes = encode_state_front(example());
    for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(parse_state_front(bytes_of(bytes).first(n), "x").has_value()) << n;
    EXPECT_FALSE(parse_state_front(bytes_of(bytes + "x"), "x").has_value());
}

TEST(DiskFormat, EveryChangedBitIsNoticed) {
    const std::string bytes = encode_state_front(example());
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        std::string changed = bytes;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        EXPECT_FALSE(parse_state_front(bytes_of(changed), "x").has_value()) << bit;
    }
}

TEST(DiskFormat, NumbersThatDoNotFitTogetherAreRefused) {
    const std::function<void(StateFront&)> changes[] = {
        [](StateFront& front) { front.pages.pop_back(); },
        [](StateFront& front) {
            front.pages.push_back({6, 0, 0});
        },
        [](StateFront& front) { front.tokens.clear(); },
        [](StateFront& front) { front.mtp_length = 131; },
        [](StateFront& front) { front.pages[1].mtp_slots = 65; },
        [](StateFront& front) { front.pages[1].record = kRecordsMax; },
        [](StateFront& front) { front.pages[2].record = 6; },  // not full, yet shared
        [](StateFront& front) { front.tokens[9] = -1; },
        [](StateFront& front) { front.page_bytes = 0; },
        [](StateFront& front) { front.page_bytes = uint64_t{1} << 40; },
        [](StateFront& front) { front.state_bytes = uint64_t{1} << 63; },
    };
    for (size_t i = 0; i < std::size(changes); ++i) {
        StateFront front = example();
        changes[i](front);
        const auto read = parse_state_front(bytes_of(encode_state_front(front)), "the file");
        ASSERT_FALSE(read.has_value()) << i;
        EXPECT_EQ(read.error().code, ErrorCode::corrupt_data);
        EXPECT_THAT(read.error().message, HasSubstr("the file: "));
    }
}

TEST(DiskFormat, CountsThatPromiseTooMuchAllocateNothing) {
    std::string bytes = encode_state_front(example());
    // The words take 6 * 2 + 20 bytes, then 72 bytes of key and numbers, then tokens, MTP slots, pages.
    const size_t counts = kStatePrefixBytes + 6 * 2 + 20 + 72;
    const uint32_t n_tokens = 1u << 26;
    const uint32_t n_pages = n_tokens / 64;
    ASSERT_EQ(bytes[counts], char(130));
    std::memcpy(bytes.data() + counts, &n_tokens, 4);
    std::memcpy(bytes.data() + counts + 8, &n_pages, 4);
    const auto read = parse_state_front(bytes_of(with_checksum(bytes)), "x");
    ASSERT_FALSE(read.has_value());
    EXPECT_THAT(read.error().message, HasSubstr("does not hold 67108864 tokens"));
}

TEST(DiskFormat, AnotherVersionIsUnsupportedNotDamaged) {
    std::string bytes = encode_state_front(example());
    bytes[8] = kDiskVersion + 1;
    EXPECT_EQ(parse_state_front(bytes_of(bytes), "x").error().code, ErrorCode::unsupported);
    std::string header = encode_pages_header({7, 5000});
    header[8] = kDiskVersion + 1;
    EXPECT_EQ(parse_pages_header(bytes_of(header), "x").error().code, ErrorCode::unsupported);
}

TEST(DiskFormat, APagesHeaderComesBackAndNoticesEveryChange) {
    const std::string bytes = encode_pages_header({7, 5000});
    ASSERT_EQ(bytes.size(), kPagesHeaderBytes);
    const auto header = parse_pages_header(bytes_of(bytes), "x");
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->conversation, 7u);
    EXPECT_EQ(header->stride(), 8192u);
    EXPECT_EQ(header->record_offset(2), 4096u + 2 * 8192u);
    for (size_t index = 0; index < bytes.size(); ++index) {
        std::string changed = bytes;
        changed[index] = static_cast<char>(changed[index] ^ 4);
        EXPECT_FALSE(parse_pages_header(bytes_of(changed), "x").has_value()) << index;
    }
}

TEST(DiskFormat, FileNames) {
    EXPECT_EQ(pages_file_name(0xab), "00000000000000ab.pages");
    const DiskFileName state = parse_file_name(state_file_name(5, 6));
    EXPECT_EQ(state.kind, DiskFileName::Kind::state);
    EXPECT_EQ(state.conversation, 5u);
    EXPECT_EQ(state.entry, 6u);
    EXPECT_EQ(parse_file_name(state_file_name(5, 6) + ".part").kind, DiskFileName::Kind::leftover);
    for (const char* name : {"", ".", "..", ".pages", "x.pages", "00000000000000AB.pages", "00000000000000ab.pages.part",
                             "00000000000000ab.state", "salt.secret", "00000000000000ab-00000000000000ab.states",
                             "00000000000000ab_00000000000000ab.state", "+0000000000000ab.pages"})
        EXPECT_EQ(parse_file_name(name).kind, DiskFileName::Kind::other) << name;
}

TEST(DiskFormat, KeysHashByOwnerSaltAndSecret) {
    const std::string secret = random_bytes(kSecretBytes);
    const std::string other = random_bytes(kSecretBytes);
    const auto key = [](std::string_view owner, std::string_view salt, const std::string& its_secret) {
        return hash_key(owner, salt, bytes_of(its_secret));
    };
    EXPECT_EQ(key("a", "b", secret), key("a", "b", secret));
    EXPECT_NE(key("a", "b", secret), key("a", "b", other));
    EXPECT_EQ(key("a", "b", secret).owner, key("a", "c", secret).owner);
    EXPECT_NE(key("a", "b", secret).whole, key("a", "c", secret).whole);
    EXPECT_NE(key("a", "bc", secret).whole, key("ab", "c", secret).whole);
    EXPECT_NE(key("", "", secret).whole, key("", std::string(1, '\0'), secret).whole);
}

}  // namespace
}  // namespace espalier::cache
