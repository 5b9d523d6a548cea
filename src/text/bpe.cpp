#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "text/bpe_queue.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr size_t kShortPieceBytes = 48;  // above this the quadratic scan is slower than the queue
constexpr size_t kNameShownBytes = 60;

uint32_t hash_bytes(std::string_view bytes) {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
    uint64_t hash = bytes.size() * kMultiplier;
    while (!bytes.empty()) {
        uint64_t word = 0;
        const size_t n = std::min<size_t>(bytes.size(), 8);
        std::memcpy(&word, bytes.data(), n);
        bytes.remove_prefix(n);
        hash = (hash ^ word) * kMultiplier;
        hash ^= hash >> 32;
    }
    return static_cast<uint32_t>(hash * kMultiplier >> 32);
}

uint32_t hash_pair(TokenId left, TokenId right) {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15ULL;
    return static_cast<uint32_t>((mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9ULL >> 32);
}

// GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 and up, in order.
constexpr bool is_own_letter(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr char32_t kAlphabetEnd = 256 + 68;  // 68 bytes are not printable

constexpr std::array<int16_t, kAlphabetEnd> byte_of_letter_table() {
    std::array<int16_t, kAlphabetEnd> table{};
    for (auto& entry : table) entry = -1;
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
        table[is_own_letter(byte) ? static_cast<char32_t>(byte) : next++] = static_cast<int16_t>(byte);
    }
    return table;
}

constexpr auto kByteOfLetter = byte_of_letter_table();

// The bytes that a name stands for; false (and the name's own bytes) when a character is not in the byte alphabet.
bool bytes_of_name(std::string_view name, std::string& bytes) {
    bytes.clear();
    for (size_t at = 0; at < name.size();) {
        size_t n_bytes = 0;
        const char32_t letter = decode_utf8(name.data() + at, n_bytes);
        if (letter >= kAlphabetEnd || kByteOfLetter[letter] < 0) {
            bytes = name;
            return false;
        }
        bytes.push_back(static_cast<char>(kByteOfLetter[letter]));
        at += n_bytes;
    }
    return true;
}

size_t slots_for(size_t n_entries) {
    return std::bit_ceil(std::max<size_t>(n_entries * 2, 16));
}

std::string_view shown(std::string_view name) {
    size_t n = std::min(name.size(), kNameShownBytes);
    while (n > 0 && n < name.size() && (name[n] & 0xC0) == 0x80) --n;
    return name.substr(0, n);
}

}  // namespace

Result<Bpe> Bpe::build(const BpeSource& source) {
    Bpe bpe;
    TRY(bpe.add_tokens(source));
    TRY(bpe.add_merges(source));
    bpe.find_whole_tokens(source.ignore_merges);
    return bpe;
}

Status Bpe::add_tokens(const BpeSource& source) {
    CHECK(source.token_names.size() == source.token_ids.size(), "one id per name");
    names_.assign(slots_for(source.token_ids.size()), NameSlot{});
    std::string bytes;
    for (size_t i = 0; i < source.token_ids.size(); ++i) {
        const std::string_view name = source.token_names[i];
        const TokenId id = source.token_ids[i];
        if (id < 0 || id >= kIdEnd) {
            return unsupported(fmt::format("token '{}' has id {}, ids from 0 to {} are supported", shown(name), id, kIdEnd - 1));
        }
        if (static_cast<size_t>(id) >= ranges_.size()) ranges_.resize(static_cast<size_t>(id) + 1);
        Range& range = ranges_[static_cast<size_t>(id)];
        if (range.is_used) return corrupt_data(fmt::format("token '{}' has id {}, which another token has too", shown(name), id));
        const bool is_encoded = bytes_of_name(name, bytes);
        if (find(bytes, is_encoded) >= 0) return corrupt_data(fmt::format("token '{}' occurs twice", shown(name)));
        range = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(bytes.size()), false, is_encoded, true};
        bytes_ += bytes;
        if (bytes_.size() > UINT32_MAX) return unsupported("the vocabulary has more than 4 GiB of text");
        const uint32_t hash = hash_bytes(bytes);
        size_t slot = hash & (names_.size() - 1);
        while (names_[slot].id >= 0) slot = (slot + 1) & (names_.size() - 1);
        names_[slot] = {hash, id};
    }
    for (int byte = 0; byte < 256; ++byte) {
        const char text = static_cast<char>(byte);
        byte_tokens_[byte] = find(std::string_view(&text, 1), true);
        if (byte_tokens_[byte] < 0)
            return unsupported(fmt::format("no token for byte 0x{:02X}; a byte-level vocabulary has all 256", byte));
    }
    return {};
}

Status Bpe::add_merges(const BpeSource& source) {
    const size_t n_merges = source.merge_parts.size() / 2;
    if (n_merges >= kNoRank) return unsupported(fmt::format("{} merges", n_merges));
    merges_.assign(slots_for(n_merges), MergeSlot{});
    merged_.resize(n_merges);
    byte_pair_ranks_.assign(size_t{256} * 256, kNoRank);
    std::string joined;
    for (size_t rank = 0; rank < n_merges; ++rank) {
        const std::string_view left_name = source.merge_parts[rank * 2];
        const std::string_view right_name = source.merge_parts[rank * 2 + 1];
        joined.assign(left_name);
        joined += right_name;
        const TokenId left = id_of_name(left_name);
        const TokenId right = id_of_name(right_name);
        merged_[rank] = id_of_name(joined);
        if (left < 0 || right < 0 || merged_[rank] < 0) {
            const std::string_view missing = left < 0 ? left_name : right < 0 ? right_name : std::string_view(joined);
            return corrupt_data(fmt::format("merge {} ('{}' + '{}') names '{}', which is not in the vocabulary", rank,
                                            shown(left_name), shown(right_name), shown(missing)));
        }
        insert_merge(left, right, static_cast<uint32_t>(rank));
    }
    for (size_t left = 0; left < 256; ++left) {
        for (size_t right = 0; right < 256; ++right) {
            const size_t mask = merges_.size() - 1;
            size_t slot = hash_pair(byte_tokens_[left], byte_tokens_[right]) & mask;
            while (merges_[slot].left >= 0 &&
                   (merges_[slot].left != byte_tokens_[left] || merges_[slot].right != byte_tokens_[right])) {
                slot = (slot + 1) & mask;
            }
            if (merges_[slot].left >= 0) byte_pair_ranks_[left * 256 + right] = merges_[slot].rank;
        }
    }
    return {};
}

// A pair that is listed twice keeps its last rank, as in the reference.
void Bpe::insert_merge(TokenId left, TokenId right, uint32_t rank) {
    size_t slot = hash_pair(left, right) & (merges_.size() - 1);
    while (merges_[slot].left >= 0 && (merges_[slot].left != left || merges_[slot].right != right)) {
        slot = (slot + 1) & (merges_.size() - 1);
    }
    merges_[slot] = {left, right, rank};
}

void Bpe::find_whole_tokens(bool ignore_merges) {
    std::vector<TokenId> ids;
    for (size_t id = 0; id < ranges_.size(); ++id) {
        Range& range = ranges_[id];
        if (!range.is_encoded || range.n_bytes == 0) continue;
        if (ignore_merges) {
            range.is_whole = true;
            continue;
        }
        const std::string_view bytes = token_bytes(static_cast<TokenId>(id));
        ids.clear();
        bytes.size() <= kShortPieceBytes ? merge_short(bytes, ids) : merge_long(bytes, ids);
        range.is_whole = ids.size() == 1 && ids[0] == static_cast<TokenId>(id);
    }
}

std::string_view Bpe::token_bytes(TokenId id) const {
    if (id < 0 || id >= id_end()) return {};
    const Range& range = ranges_[static_cast<size_t>(id)];
    return std::string_view(bytes_).substr(range.begin, range.n_bytes);
}

TokenId Bpe::find(std::string_view bytes, bool is_encoded) const {
    const uint32_t hash = hash_bytes(bytes);
    const size_t mask = names_.size() - 1;
    for (size_t slot = hash & mask; names_[slot].id >= 0; slot = (slot + 1) & mask) {
        if (names_[slot].hash != hash) continue;
        const Range& range = ranges_[static_cast<size_t>(names_[slot].id)];
        if (range.is_encoded == is_encoded && range.n_bytes == bytes.size() &&
            std::memcmp(bytes_.data() + range.begin, bytes.data(), bytes.size()) == 0) {
            return names_[slot].id;
        }
    }
    return -1;
}

TokenId Bpe::id_of_name(std::string_view name) const {
    std::string bytes;
    const bool is_encoded = bytes_of_name(name, bytes);
    return find(bytes, is_encoded);
}

uint32_t Bpe::rank_of(TokenId left, TokenId right) const {
    const size_t mask = merges_.size() - 1;
    for (size_t slot = hash_pair(left, right) & mask; merges_[slot].left >= 0; slot = (slot + 1) & mask) {
        if (merges_[slot].left == left && merges_[slot].right == right) return merges_[slot].rank;
    }
    return kNoRank;
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
    if (piece.empty()) return;
    if (const TokenId id = find(piece, true); id >= 0 && ranges_[static_cast<size_t>(id)].is_whole) {
        out.push_back(id);
        return;
    }
    piece.size() <= kShortPieceBytes ? merge_short(piece, out) : merge_long(piece, out);
}

void Bpe::merge_short(std::string_view piece, std::vector<TokenId>& out) const {
    TokenId symbols[kShortPieceBytes];
    uint32_t ranks[kShortPieceBytes];  // of symbol i with symbol i + 1
    size_t n = piece.size();
    for (size_t i = 0; i < n; ++i) {
        const auto byte = static_cast<unsigned char>(piece[i]);
        symbols[i] = byte_tokens_[byte];
        ranks[i] = i + 1 < n ? byte_pair_ranks_[byte * size_t{256} + static_cast<unsigned char>(piece[i + 1])] : kNoRank;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; ++i) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == kNoRank) break;
        symbols[best] = merged_[ranks[best]];
        for (size_t i = best + 1; i + 1 < n; ++i) {
            symbols[i] = symbols[i + 1];
            ranks[i] = ranks[i + 1];
        }
        --n;
        if (best > 0) ranks[best - 1] = rank_of(symbols[best - 1], symbols[best]);
        ranks[best] = best + 1 < n ? rank_of(symbols[best], symbols[best + 1]) : kNoRank;
    }
    out.insert(out.end(), symbols, symbols + n);
}

// The symbols of a long piece, linked in order; a symbol lives at the position of its first byte.
struct Bpe::LongPiece {
    static constexpr uint32_t kEnd = UINT32_MAX;
    std::vector<TokenId> symbols;
    std::vector<uint32_t> next;
    std::vector<uint32_t> previous;
    std::vector<uint32_t> ranks;  // of the pair that starts here; a queue entry with another rank is stale

    explicit LongPiece(size_t n) : symbols(n), next(n), previous(n), ranks(n, kNoRank) {}
};

void Bpe::merge_long(std::string_view piece, std::vector<TokenId>& out) const {
    CHECK(piece.size() < LongPiece::kEnd, "a piece has less than 4 GiB");
    const auto n = static_cast<uint32_t>(piece.size());
    LongPiece p(n);
    MergeQueue queue(merged_.size());
    for (uint32_t i = 0; i < n; ++i) {
        const auto byte = static_cast<unsigned char>(piece[i]);
        p.symbols[i] = byte_tokens_[byte];
        p.next[i] = i + 1 < n ? i + 1 : LongPiece::kEnd;
        p.previous[i] = i > 0 ? i - 1 : LongPiece::kEnd;
        if (i + 1 == n) break;
        p.ranks[i] = byte_pair_ranks_[byte * size_t{256} + static_cast<unsigned char>(piece[i + 1])];
        if (p.ranks[i] != kNoRank) queue.push({p.ranks[i], i});
    }
    const auto renew = [&](uint32_t at) {
        const uint32_t right = p.next[at];
        p.ranks[at] = right == LongPiece::kEnd ? kNoRank : rank_of(p.symbols[at], p.symbols[right]);
        if (p.ranks[at] != kNoRank) queue.push({p.ranks[at], at});
    };
    MergeQueue::Entry entry;
    while (queue.pop(entry)) {
        const uint32_t at = entry.position;
        if (p.ranks[at] != entry.rank) continue;
        const uint32_t right = p.next[at];
        p.symbols[at] = merged_[entry.rank];
        p.ranks[right] = kNoRank;
        p.next[at] = p.next[right];
        if (p.next[at] != LongPiece::kEnd) p.previous[p.next[at]] = at;
        renew(at);
        if (p.previous[at] != LongPiece::kEnd) renew(p.previous[at]);
    }
    for (uint32_t at = 0; at != LongPiece::kEnd; at = p.next[at]) out.push_back(p.symbols[at]);
}

}  // namespace espalier::text
