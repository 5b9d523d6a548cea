// fuzz-links: espalier_text
// The input up to the first zero byte is a tokenizer.json, the rest is text for it. When the file is refused, the whole input is
// text for a small fixed tokenizer. Checked: nothing crashes, streaming gives what decoding gives, and untrusted text comes back
// in its normal form.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "text/tokenizer.h"
#include "text/tokenizer_nfc.h"
#include "text/tokenizer_small_file.h"
#include "text/tokenizer_utf8.h"

namespace {

using namespace espalier::text;

constexpr size_t kTextBytesMax = 4096;  // patterns in the input may be slow; their steps are limited per piece

std::shared_ptr<const Tokenizer> fixed_tokenizer() {
    espalier::Json file = testing::small_file();
    file["added_tokens"] = {{{"id", 300}, {"content", "<s>"}, {"special", true}, {"lstrip", true}},
                            {{"id", 301}, {"content", "<t>"}, {"normalized", true}, {"single_word", true}, {"rstrip", true}}};
    auto tokenizer = Tokenizer::parse(file.dump());
    CHECK(tokenizer.has_value(), "the fixed tokenizer is valid");
    return *tokenizer;
}

void check_streaming(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    DecodeStream stream(tokenizer);
    std::string text;
    for (const TokenId id : ids) {
        const std::string piece = stream.push(id);
        CHECK(is_valid_utf8(piece), "pieces are UTF-8");
        text += piece;
    }
    CHECK(text + stream.flush() == tokenizer.decode(ids), "pieces and flush are the decoded text");
}

void use(const Tokenizer& tokenizer, std::string_view text) {
    for (const SpecialTokens special : {SpecialTokens::all, SpecialTokens::non_control, SpecialTokens::none}) {
        std::vector<TokenId> ids = tokenizer.encode(text, special);
        check_streaming(tokenizer, ids);
        std::reverse(ids.begin(), ids.end());
        check_streaming(tokenizer, ids);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const auto fixed = fixed_tokenizer();
    static const Nfc nfc;
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const size_t end = std::min(input.find('\0'), input.size());
    const std::string_view text = input.substr(std::min(end + 1, input.size())).substr(0, kTextBytesMax);
    if (const auto tokenizer = Tokenizer::parse(input.substr(0, end))) {
        use(**tokenizer, text);
        return 0;
    }
    use(*fixed, input);
    std::string storage;
    const std::string valid = replace_invalid_utf8(input);
    CHECK(fixed->decode(fixed->encode(input, SpecialTokens::none)) == nfc.apply(valid, storage),
          "untrusted text comes back in normal form");
    return 0;
}
