// fuzz-links: espalier_cache
// Headers of stored conversations and the names of their files: an error of one line, or values that are written as they were
// read and whose places in the file make sense. The first byte chooses the parser. The checksum is put right, or nothing behind
// it would ever be reached.
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cache/disk_format.h"

using namespace espalier;
using namespace espalier::cache;

namespace {

void put_checksum(std::string& bytes) {
    if (bytes.size() < kStatePrefixBytes) return;
    uint64_t seed = 0;
    std::memcpy(&seed, bytes.data() + 8, sizeof seed);
    const uint64_t checksum = XXH3_64bits_withSeed(bytes.data() + kStatePrefixBytes, bytes.size() - kStatePrefixBytes, seed);
    std::memcpy(bytes.data() + 16, &checksum, sizeof checksum);
}

void check_error(const Error& error) {
    CHECK(!error.message.empty() && error.message.find('\n') == std::string::npos, "one line says why");
}

void fuzz_front(const std::string& bytes) {
    const auto front = parse_state_front(std::as_bytes(std::span(bytes)), "fuzz");
    if (!front) return check_error(front.error());
    CHECK(encode_state_front(*front) == bytes, "what is read is written the same");
    CHECK(front->front_bytes() == bytes.size() && front->state_offset() >= bytes.size(), "the state follows the front");
    CHECK(front->inline_offset(0) >= front->state_offset() + front->state_bytes, "pages follow the state");
    CHECK(front->file_bytes() >= front->inline_offset(0), "sizes do not wrap round");
    CHECK(front->pages.size() * kPageTokens >= front->tokens.size(), "every token has a page");
}

void fuzz_pages(const std::string& bytes) {
    const auto header = parse_pages_header(std::as_bytes(std::span(bytes)), "fuzz");
    if (!header) return check_error(header.error());
    const std::string again = encode_pages_header(*header);
    const auto second = parse_pages_header(std::as_bytes(std::span(again)), "own");
    CHECK(second && second->conversation == header->conversation && second->page_bytes == header->page_bytes, "same header");
    CHECK(header->record_offset(kRecordsMax) > header->record_offset(0), "offsets do not wrap round");
}

void fuzz_name(const std::string& bytes) {
    const DiskFileName name = parse_file_name(bytes);
    if (name.kind == DiskFileName::Kind::pages) CHECK(pages_file_name(name.conversation) == bytes, "one name per id");
    if (name.kind == DiskFileName::Kind::state) CHECK(state_file_name(name.conversation, name.entry) == bytes, "one name per id");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (data[0] == 'n') {
        fuzz_name(bytes);
        return 0;
    }
    if (data[0] != 'r') put_checksum(bytes);  // raw
    fuzz_front(bytes);
    fuzz_pages(bytes);
    return 0;
}
