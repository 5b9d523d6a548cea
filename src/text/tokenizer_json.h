// The JSON of a tokenizer.json, split while it is read: model.vocab and model.merges (ten megabytes, half a million strings)
// into pools, the rest into a small document. nlohmann's event parser is not recursive, so nesting cannot exhaust the stack.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe.h"

namespace espalier::text {

struct TokenizerJson {
    nlohmann::json rest;  // an object; model.vocab and model.merges are left out
    StringPool vocab_names;
    std::vector<int64_t> vocab_ids;  // beside vocab_names
    StringPool merge_parts;          // left and right of each merge
    bool has_vocab = false;
    bool has_merges = false;
};

// Errors: corrupt_data with the byte offset (not JSON, nested too deep, too many values, a vocabulary or merge of another form).
Result<TokenizerJson> split_tokenizer_json(std::string_view text);

}  // namespace espalier::text
