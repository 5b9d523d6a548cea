// Byte-level BPE tokenizer read from a Hugging Face tokenizer.json: added tokens are cut out first (longest match), each
// remaining piece is NFC-normalised (if the file says so), split by the file's own pattern (PCRE2, UCP), mapped to bytes
// and merged by rank.
//
// Immutable after load and safe to share between threads; encode uses only local scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace espalier::text {

using TokenId = int32_t;

// Which added tokens are recognised in the text that is encoded.
enum class SpecialTokens {
    all,          // every added token (Hugging Face's default)
    non_control,  // tokens flagged special ("<|im_start|>") are plain text, the others ("<think>") are recognised
    none,         // nothing is recognised: untrusted text
};

// Which tokens appear in decoded text.
enum class SkipSpecial { no, yes };

struct AddedToken {
    TokenId id = 0;
    std::string content;
    bool is_special = false;
};

struct TokenizerFile;

class Tokenizer {
public:
    // From the parts that a file says, whatever its format. Errors: parts that do not fit together, by name.
    static Result<std::shared_ptr<const Tokenizer>> build(TokenizerFile file);
    // Parses the contents of a tokenizer.json. Errors: corrupt_data / unsupported, naming the field, what was found and what
    // is supported. Never crashes on any bytes.
    static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view tokenizer_json);
    // Reads and parses a file, or <dir>/tokenizer.json when `path` is a folder.
    static Result<std::shared_ptr<const Tokenizer>> load(const std::string& path);

    ~Tokenizer();
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    // Any bytes are accepted; invalid UTF-8 is replaced by U+FFFD first. Appends nothing of its own (no BOS, no EOS).
    std::vector<TokenId> encode(std::string_view text, SpecialTokens special = SpecialTokens::all) const;

    // The text of a whole id list; invalid UTF-8 becomes U+FFFD (one per maximal broken part). Unknown ids give nothing.
    std::string decode(const std::vector<TokenId>& ids, SkipSpecial skip = SkipSpecial::no) const;

    // The raw bytes of one token (added tokens: their text); empty for an unknown id. Views into the tokenizer.
    std::string_view token_bytes(TokenId id) const;

    // 1 + highest id.
    int32_t vocab_size() const;
    // The id of an added token by its exact text, or -1.
    TokenId added_token_id(std::string_view content) const;
    const std::vector<AddedToken>& added_tokens() const;
    bool is_added(TokenId id) const;
    bool is_special(TokenId id) const;

private:
    friend class TokenizerEncoding;
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Incremental detokeniser: complete UTF-8 is released at once, an invalid sequence gives one U+FFFD per maximal broken part
// as soon as it is known to be broken, an unfinished tail gives U+FFFD at flush. All pieces + flush = decode(all ids).
class DecodeStream {
public:
    // The tokenizer must outlive the stream.
    explicit DecodeStream(const Tokenizer& tokenizer, SkipSpecial skip = SkipSpecial::no) : tokenizer_(&tokenizer), skip_(skip) {}
    // The text that became certain with this token; may be empty.
    std::string push(TokenId id);
    // What is left at the end; the stream is fresh afterwards.
    std::string flush();

private:
    const Tokenizer* tokenizer_;
    SkipSpecial skip_;
    std::string pending_;  // at most 3 bytes of an unfinished sequence
};

}  // namespace espalier::text
