// For tests: a tokenizer in which every byte is a token, and one of printable ASCII has the id of its character minus 33.
#pragma once

#include <memory>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace espalier::quant {

inline std::shared_ptr<const text::Tokenizer> byte_tokenizer() {
    // A byte-level vocabulary spells bytes that are no printable characters as other characters.
    Json vocabulary = Json::object();
    for (int c = 33; c < 127; ++c) vocabulary[std::string(1, static_cast<char>(c))] = c - 33;
    int next = 94;
    const auto add = [&](int code_point) {
        const char utf8[] = {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63)), 0};
        vocabulary[utf8] = next++;
    };
    for (int c = 0xa1; c <= 0xac; ++c) add(c);
    for (int c = 0xae; c <= 0xff; ++c) add(c);
    for (int c = 0x100; c < 0x100 + 68; ++c) add(c);
    const Json file = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}},
                       {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                       {"decoder", {{"type", "ByteLevel"}}}};
    auto tokenizer = text::Tokenizer::parse(dump_json(file));
    CHECK(tokenizer.has_value(), "the byte tokenizer is valid");
    return *std::move(tokenizer);
}

}  // namespace espalier::quant
