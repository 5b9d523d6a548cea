// Rewrites a tokenizer.json pattern so that PCRE2 means what the reference engine (Oniguruma, as used by Hugging Face) means.
//
// The two agree on most of the syntax. What differs is translated (\s, \w, script names) or refused by name (anchors, \h, \b,
// nested classes, class intersection, ...): a tokenizer that splits differently without saying so would spoil every answer.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier::text {

// Errors: unsupported, naming the construct and its byte offset.
Result<std::string> translate_pattern(std::string_view pattern);

}  // namespace espalier::text
