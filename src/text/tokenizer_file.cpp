#include "text/tokenizer_file.h"

#include <fmt/format.h>

#include "text/pretokenize.h"
#include "text/tokenizer_json.h"

namespace espalier::text {
namespace {

using Document = nlohmann::json;

constexpr size_t kAddedBytesMax = 1024;
constexpr size_t kSplitsMax = 16;
constexpr size_t kShownMax = 80;

std::string shown(const Document& value) {
    std::string text = value.dump(-1, ' ', true, Document::error_handler_t::replace);
    if (text.size() > kShownMax) text = text.substr(0, kShownMax) + "...";
    return text;
}

// A member, or null when it is missing.
const Document& member(const Document& object, const char* name) {
    static const Document missing;
    const auto found = object.find(name);
    return found == object.end() ? missing : *found;
}

std::string type_of(const Document& object) {
    const Document& type = member(object, "type");
    return type.is_string() ? type.get<std::string>() : std::string();
}

// A true/false member; `otherwise` when it is missing or null.
Result<bool> flag(const Document& object, const char* name, bool otherwise, std::string_view where) {
    const Document& value = member(object, name);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean())
        return corrupt_data(fmt::format("{}.{}: true or false is expected, found {}", where, name, shown(value)));
    return value.get<bool>();
}

// The parts of a "Sequence", or the object itself.
std::vector<const Document*> parts_of(const Document& object, const char* list_name) {
    if (type_of(object) != "Sequence") return {&object};
    std::vector<const Document*> parts;
    for (const Document& part : member(object, list_name)) parts.push_back(&part);
    return parts;
}

Result<AddedTokenRule> read_added_token(const Document& entry, size_t index) {
    const std::string where = fmt::format("added_tokens[{}]", index);
    if (!entry.is_object()) return corrupt_data(fmt::format("{}: an object is expected, found {}", where, shown(entry)));
    const Document& content = member(entry, "content");
    if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
        return corrupt_data(fmt::format("{}.content: a non-empty string is expected, found {}", where, shown(content)));
    }
    AddedTokenRule rule;
    rule.token.content = content.get<std::string>();
    if (rule.token.content.size() > kAddedBytesMax) {
        return unsupported(
            fmt::format("{}.content: {} bytes, at most {} are supported", where, rule.token.content.size(), kAddedBytesMax));
    }
    const Document& id = member(entry, "id");
    if (!id.is_number_integer()) return corrupt_data(fmt::format("{}.id: an integer is expected, found {}", where, shown(id)));
    const bool is_negative = !id.is_number_unsigned() && id.get<int64_t>() < 0;
    if (is_negative || id.get<uint64_t>() >= static_cast<uint64_t>(Bpe::kIdEnd)) {
        return unsupported(fmt::format("{}.id: ids from 0 to {} are supported, found {}", where, Bpe::kIdEnd - 1, shown(id)));
    }
    rule.token.id = id.get<TokenId>();
    TRY_ASSIGN(rule.token.is_special, flag(entry, "special", false, where));
    TRY_ASSIGN(rule.is_normalized, flag(entry, "normalized", !rule.token.is_special, where));
    TRY_ASSIGN(rule.takes_left_space, flag(entry, "lstrip", false, where));
    TRY_ASSIGN(rule.takes_right_space, flag(entry, "rstrip", false, where));
    TRY_ASSIGN(rule.is_single_word, flag(entry, "single_word", false, where));
    return rule;
}

Result<std::vector<AddedTokenRule>> read_added_tokens(const Document& list) {
    std::vector<AddedTokenRule> rules;
    if (list.is_null()) return rules;
    if (!list.is_array()) return corrupt_data(fmt::format("added_tokens: an array is expected, found {}", shown(list)));
    for (size_t i = 0; i < list.size(); ++i) {
        TRY_ASSIGN(AddedTokenRule rule, read_added_token(list[i], i));
        rules.push_back(std::move(rule));
    }
    return rules;
}

Result<Normalizer> read_normalizer(const Document& value) {
    Normalizer normalizer = Normalizer::none;
    if (value.is_null()) return normalizer;
    for (const Document* part : parts_of(value, "normalizers")) {
        if (type_of(*part) != "NFC") return unsupported(fmt::format("normalizer: only NFC is supported, found {}", shown(*part)));
        normalizer = Normalizer::nfc;
    }
    return normalizer;
}

Result<std::string> read_split(const Document& split) {
    const Document& pattern = member(split, "pattern");
    const Document& regex = pattern.is_object() ? member(pattern, "Regex") : pattern;
    if (!pattern.is_object() || !regex.is_string()) {
        return unsupported(
            fmt::format("pre_tokenizer: Split by {} is not supported, only by {{\"Regex\": ...}}", shown(pattern)));
    }
    if (const Document& behavior = member(split, "behavior"); behavior != "Isolated") {
        return unsupported(
            fmt::format("pre_tokenizer: Split with behavior {} is not supported, only \"Isolated\"", shown(behavior)));
    }
    TRY_ASSIGN(const bool is_inverted, flag(split, "invert", false, "pre_tokenizer.Split"));
    if (is_inverted) return unsupported("pre_tokenizer: Split with \"invert\": true is not supported");
    return regex.get<std::string>();
}

// Splits, then ByteLevel at the end (which may bring a split of its own).
Result<std::vector<std::string>> read_pre_tokenizer(const Document& value) {
    std::vector<std::string> patterns;
    const std::vector<const Document*> parts = parts_of(value, "pretokenizers");
    if (parts.size() > kSplitsMax)
        return unsupported(fmt::format("pre_tokenizer: {} steps, at most {} are supported", parts.size(), kSplitsMax));
    if (parts.empty() || type_of(*parts.back()) != "ByteLevel") {
        return unsupported(fmt::format("pre_tokenizer: ByteLevel is expected as the last step, found {}", shown(value)));
    }
    for (const Document* part : parts) {
        if (part == parts.back()) break;
        if (type_of(*part) != "Split") return unsupported(fmt::format("pre_tokenizer: step {} is not supported", shown(*part)));
        TRY_ASSIGN(std::string pattern, read_split(*part));
        patterns.push_back(std::move(pattern));
    }
    TRY_ASSIGN(const bool has_prefix_space, flag(*parts.back(), "add_prefix_space", false, "pre_tokenizer.ByteLevel"));
    if (has_prefix_space) return unsupported("pre_tokenizer: ByteLevel with \"add_prefix_space\": true is not supported");
    TRY_ASSIGN(const bool has_pattern, flag(*parts.back(), "use_regex", true, "pre_tokenizer.ByteLevel"));
    if (has_pattern) patterns.emplace_back(kByteLevelPattern);
    return patterns;
}

// The decoder must be ByteLevel; a post-processor may be (it only moves offsets). Anything else would change ids or text.
Status check_byte_level(const Document& value, const char* field, const char* list_name) {
    for (const Document* part : parts_of(value, list_name)) {
        if (type_of(*part) != "ByteLevel")
            return unsupported(fmt::format("{}: only ByteLevel is supported, found {}", field, shown(*part)));
    }
    return {};
}

Status check_model(const Document& model) {
    if (!model.is_object()) return corrupt_data(fmt::format("model: an object is expected, found {}", shown(model)));
    if (const Document& type = member(model, "type"); !type.is_null() && type != "BPE") {
        return unsupported(fmt::format("model.type: only \"BPE\" is supported, found {}", shown(type)));
    }
    if (const Document& dropout = member(model, "dropout"); !dropout.is_null() && dropout != 0) {
        return unsupported(fmt::format("model.dropout: {} is not supported (ids would be random)", shown(dropout)));
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        const Document& affix = member(model, name);
        if (!affix.is_null() && affix != "") return unsupported(fmt::format("model.{}: {} is not supported", name, shown(affix)));
    }
    TRY_ASSIGN(const bool has_byte_fallback, flag(model, "byte_fallback", false, "model"));
    if (has_byte_fallback)
        return unsupported("model.byte_fallback: true is not supported (a byte-level vocabulary has every byte)");
    return {};
}

Result<BpeSource> make_bpe_source(TokenizerJson json) {
    const Document& model = member(json.rest, "model");
    TRY(check_model(model));
    if (!json.has_vocab)
        return corrupt_data(fmt::format("model.vocab: an object is expected, found {}", shown(member(model, "vocab"))));
    if (!json.has_merges)
        return corrupt_data(fmt::format("model.merges: an array is expected, found {}", shown(member(model, "merges"))));
    BpeSource source;
    TRY_ASSIGN(source.ignore_merges, flag(model, "ignore_merges", false, "model"));
    source.token_ids.reserve(json.vocab_ids.size());
    for (size_t i = 0; i < json.vocab_ids.size(); ++i) {
        const int64_t id = json.vocab_ids[i];
        if (id < 0 || id >= Bpe::kIdEnd) {
            return unsupported(fmt::format("model.vocab: token {} has id {}, ids from 0 to {} are supported",
                                           shown(std::string(json.vocab_names[i])), id, Bpe::kIdEnd - 1));
        }
        source.token_ids.push_back(static_cast<TokenId>(id));
    }
    source.token_names = std::move(json.vocab_names);
    source.merge_parts = std::move(json.merge_parts);
    return source;
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view json_text) {
    TRY_ASSIGN(TokenizerJson json, split_tokenizer_json(json_text));
    TokenizerFile file;
    const Document& rest = json.rest;
    if (const Document& version = member(rest, "version"); !version.is_null() && version != "1.0") {
        return unsupported(fmt::format("version: only \"1.0\" is supported, found {}", shown(version)));
    }
    TRY_ASSIGN(file.added, read_added_tokens(member(rest, "added_tokens")));
    TRY_ASSIGN(file.normalizer, read_normalizer(member(rest, "normalizer")));
    TRY_ASSIGN(file.patterns, read_pre_tokenizer(member(rest, "pre_tokenizer")));
    TRY(check_byte_level(member(rest, "decoder"), "decoder", "decoders"));
    if (const Document& post = member(rest, "post_processor"); !post.is_null()) {
        TRY(check_byte_level(post, "post_processor", "processors"));
    }
    TRY_ASSIGN(file.bpe, make_bpe_source(std::move(json)));
    return file;
}

}  // namespace espalier::text
