// Shared by the tokenizer's tests and benchmark: golden lines, the two tokenizers of tests/golden/text, and small hand-made
// files.
#pragma once

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace espalier::text::testing {

inline std::string golden_path(const std::string& name) {
    return std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/" + name;
}

// Every line of a JSONL file, which must have some.
inline std::vector<Json> golden_lines(const std::string& name) {
    std::vector<Json> lines;
    std::ifstream file(golden_path(name));
    for (std::string line; std::getline(file, line);) {
        auto json = parse_json(line, name);
        CHECK(json.has_value(), "a golden line is JSON");
        lines.push_back(*std::move(json));
    }
    CHECK(!lines.empty(), "golden file missing or empty");
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

inline std::shared_ptr<const Tokenizer> valid(Result<std::shared_ptr<const Tokenizer>> tokenizer) {
    CHECK(tokenizer.has_value(), tokenizer.error().message.c_str());
    return *tokenizer;
}

// 2,048 tokens.
inline std::shared_ptr<const Tokenizer> tiny_tokenizer() {
    return valid(Tokenizer::load(golden_path("tokenizer/tiny")));
}

// 248,077 tokens; loaded once per test program.
inline std::shared_ptr<const Tokenizer> real_tokenizer() {
    static const std::shared_ptr<const Tokenizer> tokenizer =
        valid(Tokenizer::parse(gunzip(golden_path("qwen3.5-tokenizer.json.gz"))));
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
            {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array({"a b", "ab c"})}}}};
}

inline std::string repeated(std::string_view text, size_t n) {
    std::string out;
    out.reserve(text.size() * n);
    for (size_t i = 0; i < n; ++i) out += text;
    return out;
}

}  // namespace espalier::text::testing
