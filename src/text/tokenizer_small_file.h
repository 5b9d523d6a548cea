// A small valid tokenizer.json for tests and the fuzz target to vary.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace espalier::text::testing {

// The 256 bytes in the byte alphabet as ids 0..255, "ab" = 256, "abc" = 257, and no added tokens.
inline Json small_file() {
    Json vocab = Json::object();
    int n_shifted = 0;
    for (int byte = 0; byte < 256; ++byte) {
        const bool is_own = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        const int letter = is_own ? byte : 256 + n_shifted++;
        std::string name;
        if (letter < 0x80) name = static_cast<char>(letter);
        else name = {static_cast<char>(0xC0 | letter >> 6), static_cast<char>(0x80 | (letter & 0x3F))};
        vocab[name] = byte;
    }
    vocab["ab"] = 256;
    vocab["abc"] = 257;
    return {{"version", "1.0"},
            {"added_tokens", Json::array()},
            {"normalizer", {{"type", "NFC"}}},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}}},
            {"post_processor", nullptr},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array({"a b", "ab c"})}}}};
}

inline std::string repeated(std::string_view text, size_t n) {
    std::string out;
    out.reserve(text.size() * n);
    for (size_t i = 0; i < n; ++i) out += text;
    return out;
}

}  // namespace espalier::text::testing
