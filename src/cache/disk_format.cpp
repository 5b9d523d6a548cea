#include "cache/disk_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/check.h"

namespace espalier::cache {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is written as it lies in memory");

constexpr std::string_view kPagesMagic = "ESPPAGES";
constexpr std::string_view kStateMagic = "ESPSTATE";
// No honest file comes near these; they keep sums and products inside 64 bits.
constexpr uint64_t kFrontBytesMax = uint64_t{1} << 28;
constexpr uint64_t kPageBytesMax = uint64_t{1} << 30;
constexpr uint64_t kStateBytesMax = uint64_t{1} << 36;
constexpr uint64_t kTokensMax = uint64_t{1} << 26;
constexpr size_t kPageRefBytes = 16;

class Writer {
public:
    template <class T>
    void number(T value) {
        static_assert(std::is_integral_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void text(const std::string& value) {
        CHECK(value.size() <= UINT16_MAX, "identity words are short");
        number(static_cast<uint16_t>(value.size()));
        bytes_ += value;
    }
    void raw(const void* data, size_t n) { bytes_.append(static_cast<const char*>(data), n); }
    std::string take() { return std::move(bytes_); }
    void put_at(size_t offset, uint64_t value) { std::memcpy(bytes_.data() + offset, &value, sizeof value); }
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

private:
    std::string bytes_;
};

// Reads past the end give zeros and are remembered.
class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    template <class T>
    T number() {
        T value = 0;
        raw(&value, sizeof value);
        return value;
    }
    std::string text() {
        std::string value(std::min<size_t>(number<uint16_t>(), bytes_.size()), '\0');
        raw(value.data(), value.size());
        return value;
    }
    void raw(void* out, size_t n) {
        if (n > bytes_.size()) {
            is_short_ = true;
            bytes_ = {};
            return;
        }
        if (n > 0) std::memcpy(out, bytes_.data(), n);
        bytes_ = bytes_.subspan(n);
    }
    size_t left() const { return bytes_.size(); }
    bool is_short() const { return is_short_; }

private:
    std::span<const std::byte> bytes_;
    bool is_short_ = false;
};

// The checksum covers what follows it and, as a seed, the version and length before it.
uint64_t header_checksum(std::span<const std::byte> bytes) {
    uint64_t seed = 0;
    std::memcpy(&seed, bytes.data() + 8, sizeof seed);
    const auto body = bytes.subspan(kStatePrefixBytes);
    return XXH3_64bits_withSeed(body.data(), body.size(), seed);
}

// Magic, version, length, checksum: the first kStatePrefixBytes of both kinds of file.
void begin_header(Writer& writer, std::string_view magic, uint64_t header_bytes) {
    writer.raw(magic.data(), magic.size());
    writer.number(kDiskVersion);
    writer.number(static_cast<uint32_t>(header_bytes));
    writer.number(uint64_t{0});
}

Result<uint64_t> check_prefix(std::span<const std::byte> bytes, std::string_view magic, const std::string& path) {
    if (bytes.size() < kStatePrefixBytes)
        return corrupt_data(
            fmt::format("{}: {} bytes, a header has at least {}: the file is cut off", path, bytes.size(), kStatePrefixBytes));
    if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
        return corrupt_data(fmt::format("{}: does not begin with \"{}\": not a file of the conversation store", path, magic));
    Reader reader(bytes.subspan(magic.size()));
    const auto version = reader.number<uint32_t>();
    if (version != kDiskVersion)
        return unsupported(fmt::format("{}: format version {}, this program reads {}", path, version, kDiskVersion));
    return uint64_t{reader.number<uint32_t>()};
}

Status check_header(std::span<const std::byte> bytes, const std::string& path) {
    uint64_t stored = 0;
    std::memcpy(&stored, bytes.data() + 16, sizeof stored);
    if (stored != header_checksum(bytes)) return corrupt_data(fmt::format("{}: the header's checksum is wrong", path));
    return {};
}

Status check_sizes(uint64_t page_bytes, uint64_t state_bytes, const std::string& path) {
    if (page_bytes > 0 && page_bytes <= kPageBytesMax && state_bytes <= kStateBytesMax) return {};
    return corrupt_data(
        fmt::format("{}: pages of {} bytes and a state of {} are not sizes of a model", path, page_bytes, state_bytes));
}

Status check_counts(const StateFront& front, uint64_t length, uint64_t n_pages, const std::string& path) {
    if (length < 1 || length > kTokensMax || n_pages != (length + kPageTokens - 1) / kPageTokens || front.mtp_length > length) {
        return corrupt_data(
            fmt::format("{}: {} tokens, {} MTP slots and {} pages do not fit together", path, length, front.mtp_length, n_pages));
    }
    return {};
}

Status check_contents(const StateFront& front, const std::string& path) {
    for (size_t index = 0; index < front.pages.size(); ++index) {
        if (front.pages[index].mtp_slots > kPageTokens)
            return corrupt_data(fmt::format("{}: page {} has {} MTP slots", path, index, front.pages[index].mtp_slots));
        if (front.pages[index].record != kInlineRecord && front.pages[index].record >= kRecordsMax)
            return corrupt_data(fmt::format("{}: page {} is record {}", path, index, front.pages[index].record));
    }
    if (front.pages.back().record != kInlineRecord && front.tokens.size() % kPageTokens != 0)
        return corrupt_data(fmt::format("{}: the last page is not full and must lie in this file", path));
    for (const TokenId token : front.tokens) {
        if (token < 0) return corrupt_data(fmt::format("{}: token id {}", path, token));
    }
    return {};
}

std::optional<uint64_t> parse_id(std::string_view hex) {
    if (hex.size() != 16) return std::nullopt;
    uint64_t id = 0;
    const auto result = std::from_chars(hex.data(), hex.data() + hex.size(), id, 16);
    if (result.ec != std::errc() || result.ptr != hex.data() + hex.size()) return std::nullopt;
    if (fmt::format("{:016x}", id) != hex) return std::nullopt;  // capitals: not a name of ours
    return id;
}

}  // namespace

std::string DiskIdentity::difference(const DiskIdentity& here) const {
    const auto one = [](const char* name, const std::string& stored, const std::string& now) {
        return fmt::format("{} {}, here {}", name, stored, now);
    };
    if (model_hash != here.model_hash)
        return fmt::format("model {} ({}), here {} ({})", model, model_hash, here.model, here.model_hash);
    if (template_hash != here.template_hash) return one("chat template", template_hash, here.template_hash);
    if (acts != here.acts) return one("activations", acts, here.acts);
    if (kv_type != here.kv_type) return one("keys and values", kv_type, here.kv_type);
    if (kernels != here.kernels) return one("kernels", kernels, here.kernels);
    return "";
}

DiskKey hash_key(std::string_view owner, std::string_view salt, std::span<const std::byte> secret) {
    CHECK(secret.size() == kSecretBytes, "the directory's secret has one length");
    const auto hash = [&](const std::string& text) {
        const XXH128_hash_t bits = XXH3_128bits_withSecret(text.data(), text.size(), secret.data(), secret.size());
        return std::array<uint64_t, 2>{bits.low64, bits.high64};
    };
    const std::string name = fmt::format("{}:{}", owner.size(), owner);  // no owner and salt read as another pair
    return {hash(name), hash(fmt::format("{}{}", name, salt))};
}

uint64_t disk_checksum(std::span<const std::byte> bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

std::string encode_pages_header(const PagesHeader& header) {
    Writer writer;
    begin_header(writer, kPagesMagic, kPagesHeaderBytes);
    writer.number(header.conversation);
    writer.number(header.page_bytes);
    const std::string padding(kPagesHeaderBytes - writer.bytes().size(), '\0');
    writer.raw(padding.data(), padding.size());
    writer.put_at(16, header_checksum(writer.bytes()));
    return writer.take();
}

Result<PagesHeader> parse_pages_header(std::span<const std::byte> bytes, const std::string& path) {
    TRY_ASSIGN(const uint64_t header_bytes, check_prefix(bytes, kPagesMagic, path));
    if (header_bytes != kPagesHeaderBytes || bytes.size() < kPagesHeaderBytes)
        return corrupt_data(fmt::format("{}: header of {} bytes, expected {}", path, bytes.size(), kPagesHeaderBytes));
    bytes = bytes.first(kPagesHeaderBytes);
    TRY(check_header(bytes, path));
    Reader reader(bytes.subspan(kStatePrefixBytes));
    PagesHeader header;
    header.conversation = reader.number<uint64_t>();
    header.page_bytes = reader.number<uint64_t>();
    TRY(check_sizes(header.page_bytes, 0, path));
    return header;
}

uint64_t StateFront::front_bytes() const {
    uint64_t words = 0;
    for (const std::string* word :
         {&identity.model, &identity.model_hash, &identity.template_hash, &identity.acts, &identity.kv_type, &identity.kernels})
        words += sizeof(uint16_t) + word->size();
    const uint64_t fixed = 4 * 8 /* key */ + 4 * 8 + 8 /* created */ + 4 * 4;
    return kStatePrefixBytes + words + fixed + pages.size() * kPageRefBytes + tokens.size() * sizeof(TokenId);
}

uint64_t StateFront::n_inline() const {
    uint64_t n = 0;
    for (const PageRef& page : pages) n += page.record == kInlineRecord ? 1 : 0;
    return n;
}

std::string encode_state_front(const StateFront& front) {
    CHECK(front.front_bytes() <= kFrontBytesMax, "contexts are bounded");
    Writer writer;
    begin_header(writer, kStateMagic, front.front_bytes());
    const DiskIdentity& identity = front.identity;
    for (const std::string* word :
         {&identity.model, &identity.model_hash, &identity.template_hash, &identity.acts, &identity.kv_type, &identity.kernels})
        writer.text(*word);
    for (const uint64_t word : front.key.owner) writer.number(word);
    for (const uint64_t word : front.key.whole) writer.number(word);
    writer.number(front.conversation);
    writer.number(front.page_bytes);
    writer.number(front.state_bytes);
    writer.number(front.state_checksum);
    writer.number(front.created_unix_ms);
    writer.number(static_cast<uint32_t>(front.tokens.size()));
    writer.number(front.mtp_length);
    writer.number(static_cast<uint32_t>(front.pages.size()));
    writer.number(static_cast<uint32_t>(front.kind));
    for (const PageRef& page : front.pages) {
        writer.number(page.record);
        writer.number(page.mtp_slots);
        writer.number(page.checksum);
    }
    writer.raw(front.tokens.data(), front.tokens.size() * sizeof(TokenId));
    CHECK(writer.bytes().size() == front.front_bytes(), "front_bytes counts what is written");
    writer.put_at(16, header_checksum(writer.bytes()));
    return writer.take();
}

Result<uint64_t> state_front_bytes(std::span<const std::byte> prefix, const std::string& path) {
    TRY_ASSIGN(const uint64_t bytes, check_prefix(prefix, kStateMagic, path));
    if (bytes < kStatePrefixBytes || bytes > kFrontBytesMax)
        return corrupt_data(
            fmt::format("{}: front of {} bytes, expected {} to {}", path, bytes, kStatePrefixBytes, kFrontBytesMax));
    return bytes;
}

Result<StateFront> parse_state_front(std::span<const std::byte> bytes, const std::string& path) {
    TRY_ASSIGN(const uint64_t front_bytes, state_front_bytes(bytes, path));
    if (bytes.size() != front_bytes)
        return corrupt_data(
            fmt::format("{}: front of {} bytes, {} are there: the file is cut off", path, front_bytes, bytes.size()));
    TRY(check_header(bytes, path));
    Reader reader(bytes.subspan(kStatePrefixBytes));
    StateFront front;
    DiskIdentity& identity = front.identity;
    for (std::string* word :
         {&identity.model, &identity.model_hash, &identity.template_hash, &identity.acts, &identity.kv_type, &identity.kernels})
        *word = reader.text();
    for (uint64_t& word : front.key.owner) word = reader.number<uint64_t>();
    for (uint64_t& word : front.key.whole) word = reader.number<uint64_t>();
    front.conversation = reader.number<uint64_t>();
    front.page_bytes = reader.number<uint64_t>();
    front.state_bytes = reader.number<uint64_t>();
    front.state_checksum = reader.number<uint64_t>();
    front.created_unix_ms = reader.number<int64_t>();
    const uint64_t length = reader.number<uint32_t>();
    front.mtp_length = reader.number<uint32_t>();
    const uint64_t n_pages = reader.number<uint32_t>();
    const auto kind = reader.number<uint32_t>();
    if (kind > static_cast<uint32_t>(PointKind::user_boundary))
        return corrupt_data(fmt::format("{}: {} is no kind of a snapshot", path, kind));
    front.kind = static_cast<PointKind>(kind);
    TRY(check_sizes(front.page_bytes, front.state_bytes, path));
    TRY(check_counts(front, length, n_pages, path));
    if (reader.is_short() || reader.left() != n_pages * kPageRefBytes + length * sizeof(TokenId))
        return corrupt_data(fmt::format("{}: a front of {} bytes does not hold {} tokens", path, front_bytes, length));
    front.pages.resize(n_pages);
    for (PageRef& page : front.pages) {
        page.record = reader.number<uint32_t>();
        page.mtp_slots = reader.number<uint32_t>();
        page.checksum = reader.number<uint64_t>();
    }
    front.tokens.resize(length);
    reader.raw(front.tokens.data(), length * sizeof(TokenId));
    TRY(check_contents(front, path));
    return front;
}

std::string pages_file_name(uint64_t conversation) {
    return fmt::format("{:016x}.pages", conversation);
}

std::string state_file_name(uint64_t conversation, uint64_t entry) {
    return fmt::format("{:016x}-{:016x}.state", conversation, entry);
}

DiskFileName parse_file_name(std::string_view name) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    const std::string_view stem = name.substr(0, dot);
    const std::string_view ending = name.substr(dot);
    if (ending == ".part") {
        const DiskFileName whole = parse_file_name(stem);
        if (whole.kind == DiskFileName::Kind::state) return {DiskFileName::Kind::leftover, whole.conversation, whole.entry};
        return {};
    }
    const auto conversation = parse_id(stem.substr(0, 16));
    if (!conversation) return {};
    if (ending == ".pages" && stem.size() == 16) return {DiskFileName::Kind::pages, *conversation, 0};
    if (ending != ".state" || stem.size() != 33 || stem[16] != '-') return {};
    const auto entry = parse_id(stem.substr(17));
    if (!entry) return {};
    return {DiskFileName::Kind::state, *conversation, *entry};
}

}  // namespace espalier::cache
