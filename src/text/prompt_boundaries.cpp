#include "text/prompt_boundaries.h"

#include <algorithm>

namespace espalier::text {
namespace {

// How much of the other text is read behind the point where it differs: more than any token or word near it needs.
constexpr size_t kLookAheadBytes = 1024;
// Where no added token stands that near, tokens are compared from the beginning.
constexpr size_t kLookBackBytes = 1 << 16;

// A place in the text where a token begins for certain.
struct Anchor {
    size_t byte = 0;
    TokenId token = -1;
    std::string_view spelled;
};

// Added tokens in brackets cannot overlap, so each of their spellings in the text is one token.
bool is_bracketed(std::string_view text) {
    return text.size() > 2 && text.front() == '<' && text.back() == '>';
}

// The last added token in the text: candidates are tried at each bracket from the end, since one is usually near.
Anchor last_anchor(const Tokenizer& tokenizer, std::string_view common) {
    const size_t begin = common.size() > kLookBackBytes ? common.size() - kLookBackBytes : 0;
    for (size_t at = common.rfind('<'); at != std::string_view::npos && at >= begin; at = common.rfind('<', at - 1)) {
        for (const AddedToken& token : tokenizer.added_tokens()) {
            if (token.is_special && is_bracketed(token.content) && common.substr(at).starts_with(token.content))
                return {at, token.id, token.content};
        }
        if (at == 0) break;
    }
    return {};
}

size_t count_spellings(std::string_view text, std::string_view spelled) {
    size_t n = 0;
    for (size_t at = text.find(spelled); at != std::string_view::npos; at = text.find(spelled, at + spelled.size())) ++n;
    return n;
}

// The index of the n-th occurrence (from 0) of a token; the end of the ids if there are fewer.
size_t nth_token(const std::vector<TokenId>& ids, TokenId token, size_t n) {
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] == token && n-- == 0) return i;
    }
    return ids.size();
}

}  // namespace

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, std::string_view text) {
    return tokenizer.encode(text, SpecialTokens::all);
}

int32_t common_token_prefix(const Tokenizer& tokenizer, std::string_view prompt, const std::vector<TokenId>& prompt_ids,
                            std::string_view other) {
    const auto differs = std::mismatch(prompt.begin(), prompt.end(), other.begin(), other.end()).first;
    const auto common = static_cast<size_t>(differs - prompt.begin());
    const Anchor anchor = last_anchor(tokenizer, prompt.substr(0, common));
    size_t first = 0;
    if (anchor.token >= 0) {
        first = nth_token(prompt_ids, anchor.token, count_spellings(prompt.substr(0, anchor.byte), anchor.spelled));
        if (first == prompt_ids.size()) return 0;
    }
    const std::vector<TokenId> ids = encode_prompt(tokenizer, other.substr(anchor.byte, common - anchor.byte + kLookAheadBytes));
    size_t same = 0;
    while (same < ids.size() && first + same < prompt_ids.size() && ids[same] == prompt_ids[first + same]) ++same;
    return static_cast<int32_t>(first + same);
}

}  // namespace espalier::text
