// Reads a tokenizer.json into plain values. The two large parts (vocabulary and merges) go straight into string pools while
// the JSON is read; the small rest becomes a document.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe.h"

namespace espalier::text {

struct AddedTokenRule {
    AddedToken token;
    bool is_normalized = false;      // matched in normalised text instead of raw text
    bool takes_left_space = false;   // "lstrip"
    bool takes_right_space = false;  // "rstrip"
    bool is_single_word = false;
};

enum class Normalizer { none, nfc };

struct TokenizerFile {
    BpeSource bpe;
    std::vector<AddedTokenRule> added;
    Normalizer normalizer = Normalizer::none;
    std::vector<std::string> patterns;  // applied one after the other, each to the pieces of the one before
};

// Errors: corrupt_data (not JSON, a field missing or of the wrong type), unsupported (a feature that this tokenizer does not
// have), each naming the field. Consistency between the parts is checked by Bpe::build and Tokenizer::parse.
Result<TokenizerFile> read_tokenizer_file(std::string_view json);

}  // namespace espalier::text
