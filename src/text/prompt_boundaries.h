// Where a later prompt of the same conversation will stop agreeing with this one, in tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace espalier::text {

// How a rendered prompt becomes ids. The whole text is read with every added token recognised, as Hugging Face does, so a control
// token spelled out in a message acts as one. The one place to change when messages shall be read apart from the template's text.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::string_view text);

// The length of the common token prefix of a prompt (text and its ids) and another text, without reading the other text whole:
// tokens are compared from the last added token before the texts differ, where both have been read alike.
int32_t common_token_prefix(const Tokenizer& tokenizer, std::string_view prompt, const std::vector<TokenId>& prompt_ids,
                            std::string_view other);

}  // namespace espalier::text
