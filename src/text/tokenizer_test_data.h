// Shared by the tokenizer's tests: golden lines, the two tokenizers of tests/golden/text, and small hand-made files.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace espalier::text::testing {

inline std::string golden_path(const std::string& name) { return std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/" + name; }

// Every line of a JSONL file; fails the test when there is none.
inline std::vector<Json> golden_lines(const std::string& name) {
    std::vector<Json> lines;
    std::ifstream file(golden_path(name));
    for (std::string line; std::getline(file, line);) {
        auto json = parse_json(line, name);
        EXPECT_TRUE(json) << name;
        if (json) lines.push_back(*std::move(json));
    }
    EXPECT_FALSE(lines.empty()) << golden_path(name);
    return lines;
}

// The unpacked bytes of a .gz file, through the gzip program.
inline std::string gunzip(const std::string& path) {
    std::string bytes;
    FILE* pipe = ::popen(("gzip -dc '" + path + "'").c_str(), "r");
    if (pipe == nullptr) return bytes;
    char buffer[65536];
    for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) bytes.append(buffer, n);
    ::pclose(pipe);
    return bytes;
}

inline std::shared_ptr<const Tokenizer> parse_or_fail(std::string_view json) {
    auto tokenizer = Tokenizer::parse(json);
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? *tokenizer : nullptr;
}

// 2,048 tokens.
inline std::shared_ptr<const Tokenizer> tiny_tokenizer() {
    auto tokenizer = Tokenizer::load(golden_path("tokenizer/tiny"));
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? *tokenizer : nullptr;
}

// 248,077 tokens; loaded once per test program.
inline std::shared_ptr<const Tokenizer> real_tokenizer() {
    static const std::shared_ptr<const Tokenizer> tokenizer = parse_or_fail(gunzip(golden_path("qwen3.5-tokenizer.json.gz")));
    return tokenizer;
}

// A valid file to vary: the 256 bytes in the byte alphabet as ids 0..255, "ab" = 256, "abc" = 257, and no added tokens.
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
            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
}

inline std::string repeated(std::string_view text, size_t n) {
    std::string out;
    out.reserve(text.size() * n);
    for (size_t i = 0; i < n; ++i) out += text;
    return out;
}

}  // namespace espalier::text::testing
