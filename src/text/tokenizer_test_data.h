// Shared by the tokenizer's tests and benchmark: golden lines, the two tokenizers of tests/golden/text, and
// a small file to vary.
#pragma once

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer_small_file.h"

namespace espalier::text::testing {

// Benchmarks are not told the source folder; they are run from it.
inline std::string golden_path(const std::string& name) {
#ifdef ESPALIER_SOURCE_DIR
    const std::string root = ESPALIER_SOURCE_DIR;
#else
    const std::string root = ".";
#endif
    return root + "/tests/golden/text/" + name;
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

}  // namespace espalier::text::testing
