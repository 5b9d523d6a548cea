// Texts for calibration and for the comparison of the result, as token ids.
//
// A file holds one record a line: a chat {"messages", "tools"} rendered with the model's own template, {"text"}, or, for models
// without a tokenizer, an array of token ids. A file that is one JSON array of arrays of ids is read too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace espalier::quant {

using text::TokenId;

struct TokenSet {
    std::vector<std::vector<TokenId>> sequences;  // calibration first, then held out
    size_t n_calibration = 0;
    int64_t n_records = 0;  // in the file

    int64_t n_rows() const { return row_begin(sequences.size()); }
    int64_t row_begin(size_t sequence) const;  // rows of all sequences follow each other
    int64_t longest() const;
};

struct TextLimits {
    int64_t calibration_tokens = 0;  // at most about this many
    int64_t heldout_tokens = 0;
    int32_t vocab = 0;  // ids must be below
};

// Both may be null; records that need them are then an error.
struct TextModel {
    const text::Tokenizer* tokenizer = nullptr;
    const text::ChatTemplate* chat_template = nullptr;
};

// Every eighth record is held out (of fewer than eight the last; a single one serves both). Records are taken evenly over the
// file until the limit; long ones are cut. The same file and limits give the same sets. Errors: by line.
Result<TokenSet> read_token_set(std::string_view file, std::string_view name, const TextModel& model, const TextLimits& limits);

// The records that are part of the program; see demo/data/README.md.
std::string_view default_calibration();

}  // namespace espalier::quant
