// Byte-pair encoding over raw bytes: the vocabulary, the merge table and the merging of one piece.
//
// The result is defined as: while some neighbouring pair has a merge, apply the one of lowest rank, leftmost first. Three ways
// lead there. A piece that is a token which the merges reach gives that token at once (known for every token from load; nine
// pieces of ten in prose). A short piece is merged by scanning for the lowest rank, quadratic but in registers and L1. A long
// piece (one word of a million letters) uses linked symbols and a queue ordered by (rank, position), O(n log n).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace espalier::text {

// Many byte strings in one allocation.
class StringPool {
public:
    void append(std::string_view bytes) {
        bytes_ += bytes;
        ends_.push_back(bytes_.size());
    }
    size_t size() const { return ends_.size(); }
    std::string_view operator[](size_t index) const {
        const size_t begin = index == 0 ? 0 : ends_[index - 1];
        return std::string_view(bytes_).substr(begin, ends_[index] - begin);
    }

private:
    std::string bytes_;
    std::vector<size_t> ends_;
};

// What a file says; names are in GPT-2's byte alphabet ("\u0120the" is " the").
struct BpeSource {
    StringPool token_names;
    std::vector<TokenId> token_ids;  // beside token_names
    StringPool merge_parts;          // left and right of each merge, in rank order
    bool ignore_merges = false;      // a piece that is a token is that token, whatever the merges say
};

class Bpe {
public:
    static constexpr TokenId kIdEnd = 1 << 22;  // ids index tables; the largest known vocabulary has a quarter of this

    // Errors: corrupt_data (two tokens with one id or one name, a merge of unknown tokens), unsupported (an id outside
    // [0, kIdEnd), a byte without a token).
    static Result<Bpe> build(const BpeSource& source);

    // Appends the ids of one piece. Thread-safe.
    void encode(std::string_view piece, std::vector<TokenId>& out) const;

    // Raw bytes of a token, empty for an id that is not in the vocabulary.
    std::string_view token_bytes(TokenId id) const;
    // The id of the token with this name (byte alphabet), or -1.
    TokenId id_of_name(std::string_view name) const;
    // 1 + highest id.
    TokenId id_end() const { return static_cast<TokenId>(ranges_.size()); }

private:
    struct Range {
        uint32_t begin = 0;
        uint32_t n_bytes = 0;
        bool is_whole = false;    // the piece with these bytes encodes to this token
        bool is_encoded = false;  // the name was in the byte alphabet: text can become this token
        bool is_used = false;
    };
    struct NameSlot {
        uint32_t hash = 0;
        TokenId id = -1;
    };
    struct MergeSlot {
        TokenId left = -1;
        TokenId right = -1;
        uint32_t rank = 0;
    };
    struct LongPiece;

    Status add_tokens(const BpeSource& source);
    Status add_merges(const BpeSource& source);
    void insert_merge(TokenId left, TokenId right, uint32_t rank);
    void find_whole_tokens(bool ignore_merges);
    TokenId find(std::string_view bytes, bool is_encoded) const;
    uint32_t rank_of(TokenId left, TokenId right) const;
    void merge_short(std::string_view piece, std::vector<TokenId>& out) const;
    void merge_long(std::string_view piece, std::vector<TokenId>& out) const;

    std::string bytes_;              // of all tokens
    std::vector<Range> ranges_;      // by id
    std::vector<NameSlot> names_;    // open addressing, power of two
    std::vector<MergeSlot> merges_;  // open addressing, power of two
    std::vector<TokenId> merged_;    // by rank: the token that the merge makes
    TokenId byte_tokens_[256] = {};
    std::vector<uint32_t> byte_pair_ranks_;  // [256, 256]: rank of the merge of two bytes; most lookups of a fresh piece
};

}  // namespace espalier::text
