// The tokenizer that the metadata of a GGUF file describes (tokenizer.ggml.*): tokens with their types, merges, and the name of a
// pre-tokenizer whose pattern the file does not have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer_file.h"

namespace espalier::text {

// Views of the file.
struct GgufVocabulary {
    std::string_view model;                // "gpt2": byte-level BPE
    std::string_view pre;                  // "qwen2", "qwen35": says the pattern and the normalisation
    std::vector<std::string_view> tokens;  // by id
    std::vector<int32_t> types;            // beside tokens: 1 normal, 3 control, 4 user-defined, 5 unused, 6 byte
    std::vector<std::string_view> merges;  // "left right" in rank order
};

// Control tokens become special added tokens, user-defined ones added tokens that are not special; unused ids are left out.
// Errors: unsupported (another model or pre-tokenizer, by name), corrupt_data (lists that do not fit together, a merge that is no
// pair).
Result<TokenizerFile> tokenizer_file_of(const GgufVocabulary& vocabulary);

}  // namespace espalier::text
