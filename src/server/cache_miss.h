// Why a prompt was read again, in words and with the text around the place where it parts from an earlier one.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace espalier::server {

// {"prompt_tokens", "cached_tokens", "common_tokens", "earlier_tokens", "reason", "text": {"before", "earlier", "now"}}.
Json cache_miss_json(const engine::CacheMiss& miss, const text::Tokenizer& tokenizer);

// One line for the debug log; quotes prompt text.
std::string cache_miss_line(const engine::CacheMiss& miss, const text::Tokenizer& tokenizer);

}  // namespace espalier::server
