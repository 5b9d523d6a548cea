#include "app/gguf_text.h"

#include <fmt/format.h>

#include "checkpoint/gguf_files.h"
#include "text/gguf_vocabulary.h"

namespace espalier::app {
namespace {

using checkpoint::find_entry;
using checkpoint::GgufMetadata;
using checkpoint::GgufValue;

Error wrong(const std::string& path, const char* key, const GgufValue* value, std::string_view expected) {
    return invalid_input(fmt::format("{}: metadata {} is {}, expected {}; the file has no tokenizer that this program can use",
                                     path, key, value == nullptr ? "missing" : value->describe(), expected));
}

Result<std::string_view> text_of(const GgufMetadata& metadata, const std::string& path, const char* key) {
    const GgufValue* value = find_entry(metadata, key);
    if (value == nullptr || value->is_array() || !value->text()) return wrong(path, key, value, "a string");
    return *value->text();
}

Result<std::vector<std::string_view>> texts_of(const GgufMetadata& metadata, const std::string& path, const char* key) {
    const GgufValue* value = find_entry(metadata, key);
    if (value == nullptr || !value->is_array() || value->kind() != GgufValue::Kind::string)
        return wrong(path, key, value, "an array of strings");
    std::vector<std::string_view> texts;
    for (size_t i = 0; i < value->size(); ++i) texts.push_back(*value->text(i));
    return texts;
}

Result<std::vector<int32_t>> types_of(const GgufMetadata& metadata, const std::string& path) {
    constexpr const char* kKey = "tokenizer.ggml.token_type";
    const GgufValue* value = find_entry(metadata, kKey);
    if (value == nullptr || !value->is_array()) return wrong(path, kKey, value, "an array of integers");
    std::vector<int32_t> types;
    for (size_t i = 0; i < value->size(); ++i) types.push_back(static_cast<int32_t>(value->integer(i).value_or(0)));
    return types;
}

Result<std::shared_ptr<const text::Tokenizer>> make_tokenizer(const GgufMetadata& metadata, const std::string& path) {
    text::GgufVocabulary vocabulary;
    TRY_ASSIGN(vocabulary.model, text_of(metadata, path, "tokenizer.ggml.model"));
    TRY_ASSIGN(vocabulary.pre, text_of(metadata, path, "tokenizer.ggml.pre"));
    TRY_ASSIGN(vocabulary.tokens, texts_of(metadata, path, "tokenizer.ggml.tokens"));
    TRY_ASSIGN(vocabulary.types, types_of(metadata, path));
    TRY_ASSIGN(vocabulary.merges, texts_of(metadata, path, "tokenizer.ggml.merges"));
    // Nothing here puts a token before every prompt; a model that needs one would answer worse without a word.
    const GgufValue* adds_bos = find_entry(metadata, "tokenizer.ggml.add_bos_token");
    if (adds_bos != nullptr && adds_bos->boolean().value_or(false))
        return unsupported(fmt::format("{}: tokenizer.ggml.add_bos_token is true, only false is supported", path));
    const auto located = [&](const Error& error) { return Error{error.code, fmt::format("{}: {}", path, error.message)}; };
    auto file = text::tokenizer_file_of(vocabulary);
    if (!file) return located(file.error());
    auto tokenizer = text::Tokenizer::build(*std::move(file));
    if (!tokenizer) return located(tokenizer.error());
    return tokenizer;
}

}  // namespace

Result<GgufText> read_gguf_text(const std::string& path) {
    TRY_ASSIGN(const auto files, checkpoint::open_gguf_files(path));
    const GgufMetadata& metadata = files.metadata;
    GgufText out{nullptr, Json::object(), Json::object()};
    TRY_ASSIGN(out.tokenizer, make_tokenizer(metadata, path));
    if (const GgufValue* eos = find_entry(metadata, "tokenizer.ggml.eos_token_id"); eos != nullptr) {
        const auto id = eos->integer().value_or(-1);
        if (id >= 0 && id < out.tokenizer->vocab_size())
            out.tokenizer_config["eos_token"] = std::string(out.tokenizer->token_bytes(static_cast<text::TokenId>(id)));
    }
    if (const GgufValue* chat = find_entry(metadata, "tokenizer.chat_template");
        chat != nullptr && !chat->is_array() && chat->text())
        out.tokenizer_config["chat_template"] = std::string(*chat->text());
    struct Advice {
        const char* gguf;
        const char* ours;
    };
    constexpr Advice kAdvice[] = {{"general.sampling.temp", "temperature"},
                                  {"general.sampling.top_p", "top_p"},
                                  {"general.sampling.top_k", "top_k"},
                                  {"general.sampling.min_p", "min_p"},
                                  {"general.sampling.penalty_repeat", "repetition_penalty"}};
    for (const Advice& advice : kAdvice) {
        const GgufValue* value = find_entry(metadata, advice.gguf);
        if (value == nullptr || value->is_array()) continue;
        if (const auto whole = value->integer()) out.generation_config[advice.ours] = *whole;
        else if (const auto number = value->number()) out.generation_config[advice.ours] = *number;
    }
    return out;
}

Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer(const std::string& path) {
    if (!checkpoint::is_gguf(path)) return text::Tokenizer::load(path);
    TRY_ASSIGN(GgufText text, read_gguf_text(path));
    return text.tokenizer;
}

}  // namespace espalier::app
