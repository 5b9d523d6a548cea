#include "text/gguf_vocabulary.h"

#include <fmt/format.h>

namespace espalier::text {
namespace {

constexpr size_t kAddedBytesMax = 1024;
constexpr size_t kShownBytesMax = 64;

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct PreTokenizer {
    std::string_view name;
    std::string_view pattern;
};

// The patterns of the models' own tokenizer.json; both normalise to NFC. The second lets combining marks join letters.
constexpr PreTokenizer kPreTokenizers[] = {
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen35",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

std::string shown(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, kShownBytesMax)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7f) out += c;
        else out += fmt::format("\\x{:02x}", byte);
    }
    return text.size() > kShownBytesMax ? out + "..." : out;
}

Result<std::string> pattern_of(std::string_view pre) {
    for (const auto& known : kPreTokenizers) {
        if (known.name == pre) return std::string(known.pattern);
    }
    return unsupported(fmt::format("tokenizer.ggml.pre is '{}', supported are qwen2 and qwen35", shown(pre)));
}

Status add_token(const GgufVocabulary& vocabulary, size_t id, TokenizerFile& file) {
    const std::string_view text = vocabulary.tokens[id];
    switch (vocabulary.types[id]) {
        case kUnused: return {};
        case kNormal:
        case kByte:
            file.bpe.token_names.append(text);
            file.bpe.token_ids.push_back(static_cast<TokenId>(id));
            return {};
        case kControl:
        case kUserDefined: break;
        default:
            return unsupported(fmt::format("tokenizer.ggml.token_type of token {} ('{}') is {}, supported are 1, 3, 4, 5 and 6",
                                           id, shown(text), vocabulary.types[id]));
    }
    if (text.empty() || text.size() > kAddedBytesMax) {
        return corrupt_data(
            fmt::format("tokenizer.ggml.tokens: added token {} has {} bytes, expected 1 to {}", id, text.size(), kAddedBytesMax));
    }
    AddedTokenRule rule;
    rule.token = {static_cast<TokenId>(id), std::string(text), vocabulary.types[id] == kControl};
    file.added.push_back(std::move(rule));
    return {};
}

}  // namespace

Result<TokenizerFile> tokenizer_file_of(const GgufVocabulary& vocabulary) {
    if (vocabulary.model != "gpt2") {
        return unsupported(
            fmt::format("tokenizer.ggml.model is '{}', only 'gpt2' (byte-level BPE) is supported", shown(vocabulary.model)));
    }
    TokenizerFile file;
    TRY_ASSIGN(std::string pattern, pattern_of(vocabulary.pre));
    file.patterns.push_back(std::move(pattern));
    file.normalizer = Normalizer::nfc;
    if (vocabulary.tokens.size() != vocabulary.types.size()) {
        return corrupt_data(fmt::format("tokenizer.ggml.tokens has {} entries, tokenizer.ggml.token_type {}; expected as many",
                                        vocabulary.tokens.size(), vocabulary.types.size()));
    }
    if (vocabulary.tokens.size() > static_cast<size_t>(Bpe::kIdEnd))
        return unsupported(
            fmt::format("tokenizer.ggml.tokens has {} entries, at most {} are supported", vocabulary.tokens.size(), Bpe::kIdEnd));
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) TRY(add_token(vocabulary, id, file));
    for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
        const std::string_view merge = vocabulary.merges[i];
        const size_t space = merge.find(' ');
        if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
            return corrupt_data(fmt::format("tokenizer.ggml.merges: entry {} is '{}', expected two tokens with one space between",
                                            i, shown(merge)));
        }
        file.bpe.merge_parts.append(merge.substr(0, space));
        file.bpe.merge_parts.append(merge.substr(space + 1));
    }
    return file;
}

}  // namespace espalier::text
