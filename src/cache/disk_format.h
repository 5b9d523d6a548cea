// The bytes of a stored conversation: headers to and from memory. No files here; docs/prefix-cache-disk.md has the layout.
//
//   <conversation>.pages           header (4096 bytes), then records: one full KV page each, at a fixed stride, append-only
//   <conversation>-<entry>.state   front (identity, sizes, page table, token ids), state slot, pages of its own
//
// A page is "of its own" (inline) when it is not final: not yet full, or some but not all of its MTP slots are filled, or the
// last of them depends on a token that this entry does not have. All other pages are the same bytes in every entry with the same
// tokens (law 1: the same tokens give the same bits), so they are shared through the pages file.
//
// Integers are little-endian. Checksums are XXH3 with 64 bits, against damage, not against an attacker: the directory is private.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/shape.h"
#include "cache/snapshot_policy.h"

namespace espalier::cache {

inline constexpr uint32_t kDiskVersion = 2;
inline constexpr size_t kDiskAlignment = 4096;
inline constexpr size_t kPagesHeaderBytes = kDiskAlignment;
inline constexpr size_t kStatePrefixBytes = 24;  // enough of a state file to know how long its front is
inline constexpr uint32_t kInlineRecord = 0xffffffff;
inline constexpr uint32_t kRecordsMax = uint32_t{1} << 24;  // of one pages file: 2^30 tokens

// What must agree for stored bytes to mean the same thing here. The words are compared as they are.
struct DiskIdentity {
    std::string model;          // what people call it; shown, not compared
    std::string model_hash;     // of weights and config
    std::string template_hash;  // of the chat template
    std::string acts;
    std::string kv_type;
    std::string kernels;  // tier and version of the kernel set

    // "kernels avx512, here avx2" for the first difference; empty if there is none.
    std::string difference(const DiskIdentity& here) const;
};

// Whose entry it is: 128 bits each of the owner (the API key), and of owner and cache salt together, under the directory's
// secret. Equal ones can be recognised, not read.
struct DiskKey {
    std::array<uint64_t, 2> owner{};
    std::array<uint64_t, 2> whole{};
    auto operator<=>(const DiskKey&) const = default;
};
inline constexpr size_t kSecretBytes = 192;
DiskKey hash_key(std::string_view owner, std::string_view salt, std::span<const std::byte> secret);  // secret: kSecretBytes

uint64_t disk_checksum(std::span<const std::byte> bytes);

constexpr uint64_t disk_align(uint64_t bytes) {
    return (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
}

struct PagesHeader {
    uint64_t conversation = 0;
    uint64_t page_bytes = 0;
    uint64_t stride() const { return disk_align(page_bytes); }
    uint64_t record_offset(uint64_t record) const { return kPagesHeaderBytes + record * stride(); }
};
std::string encode_pages_header(const PagesHeader& header);  // kPagesHeaderBytes long
// Errors: corrupt_data; unsupported for another version of the format.
Result<PagesHeader> parse_pages_header(std::span<const std::byte> bytes, const std::string& path);

struct PageRef {
    uint32_t record = kInlineRecord;  // in the pages file; kInlineRecord: in this file, in order
    uint32_t mtp_slots = 0;           // filled slots of the MTP layer in this page
    uint64_t checksum = 0;
};

// Everything of an entry but the state and the pages.
struct StateFront {
    DiskIdentity identity;
    DiskKey key;
    uint64_t conversation = 0;
    uint64_t page_bytes = 0;
    uint64_t state_bytes = 0;
    uint64_t state_checksum = 0;
    int64_t created_unix_ms = 0;
    uint32_t mtp_length = 0;
    PointKind kind = PointKind::ladder;
    std::vector<PageRef> pages;  // ceil(length / 64)
    std::vector<TokenId> tokens;

    // Derived places in the file.
    uint64_t front_bytes() const;
    uint64_t state_offset() const { return disk_align(front_bytes()); }
    uint64_t inline_offset(uint64_t index) const {
        return disk_align(state_offset() + state_bytes) + index * disk_align(page_bytes);
    }
    uint64_t n_inline() const;
    uint64_t file_bytes() const { return inline_offset(n_inline()); }
};
std::string encode_state_front(const StateFront& front);
// Length of the front that these first kStatePrefixBytes announce. Errors: corrupt_data; unsupported for another version.
Result<uint64_t> state_front_bytes(std::span<const std::byte> prefix, const std::string& path);
// `bytes`: the whole front. Errors: corrupt_data, unsupported.
Result<StateFront> parse_state_front(std::span<const std::byte> bytes, const std::string& path);

// File names. parse_file_name: what a name in the directory is.
std::string pages_file_name(uint64_t conversation);
std::string state_file_name(uint64_t conversation, uint64_t entry);
struct DiskFileName {
    enum class Kind { pages, state, leftover, other };
    Kind kind = Kind::other;
    uint64_t conversation = 0;
    uint64_t entry = 0;
};
DiskFileName parse_file_name(std::string_view name);

}  // namespace espalier::cache
