// `espalier eval tokenize` and `espalier eval detokenize`: JSON lines in, JSON lines out. Blank lines are skipped.
#pragma once

#include <iosfwd>

#include "base/result.h"
#include "text/tokenizer.h"

namespace espalier::probe {

// {"text": ..., "special": "all" | "non_control" | "none"} -> {"ids": [...]}; "special" defaults to "all".
// Errors: invalid_input with the line number; the lines before it are written.
Status run_tokenize(const text::Tokenizer& tokenizer, std::istream& in, std::ostream& out);

// {"ids": [...], "skip_special": false} -> {"text", "pieces", "flush"}: pieces + flush = text; "skip_special" may be left out.
// Ids that the tokenizer does not have give no text.
Status run_detokenize(const text::Tokenizer& tokenizer, std::istream& in, std::ostream& out);

}  // namespace espalier::probe
