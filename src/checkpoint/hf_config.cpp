#include "checkpoint/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/mapped_file.h"

namespace espalier::checkpoint {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;  // mixed-precision metadata names every module
constexpr int kConfigDepthMax = 32;

Status add_eos_ids(const Json& config, std::string_view what, std::vector<int32_t>& ids) {
    const auto found = config.find("eos_token_id");
    if (found == config.end() || found->is_null()) return {};
    const Json list = found->is_array() ? *found : Json::array({*found});
    for (const auto& item : list) {
        if (!item.is_number_integer() || item < 0 || item > std::numeric_limits<int32_t>::max()) {
            return invalid_input(
                fmt::format("{}: eos_token_id holds {}, expected token ids", what, dump_json(item).substr(0, 80)));
        }
        const auto id = item.get<int32_t>();
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return {};
}

Result<std::optional<double>> optional_number(const Json& config, std::string_view key, std::string_view what) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return std::optional<double>();
    if (!found->is_number()) {
        return invalid_input(fmt::format("{}: {} is {}, expected a number", what, key, dump_json(*found).substr(0, 80)));
    }
    return std::optional<double>(found->get<double>());
}

Status read_generation(std::string_view text, const std::string& what, GenerationDefaults& defaults) {
    TRY_ASSIGN(const auto json, parse_json(text, what, kConfigDepthMax));
    if (!json.is_object()) return invalid_input(fmt::format("{}: expected a JSON object", what));
    TRY(add_eos_ids(json, what, defaults.eos_ids));
    TRY_ASSIGN(defaults.temperature, optional_number(json, "temperature", what));
    TRY_ASSIGN(defaults.top_p, optional_number(json, "top_p", what));
    TRY_ASSIGN(const auto top_k, optional_number(json, "top_k", what));
    if (top_k) {
        if (!(*top_k >= 0 && *top_k <= 1e9))
            return invalid_input(fmt::format("{}: top_k is {}, expected 0 to 1e9", what, *top_k));
        defaults.top_k = static_cast<int64_t>(*top_k);
    }
    return {};
}

}  // namespace

Result<HfConfig> parse_hf_config(std::string_view config_text, std::string_view generation_text, const std::string& folder) {
    const auto config_path = (std::filesystem::path(folder) / "config.json").string();
    HfConfig config;
    TRY_ASSIGN(config.raw, parse_json(config_text, config_path, kConfigDepthMax));
    if (!config.raw.is_object()) return invalid_input(fmt::format("{}: expected a JSON object", config_path));
    const auto nested = config.raw.find("text_config");
    if (nested == config.raw.end()) {
        config.text = config.raw;
    } else {
        if (!nested->is_object()) return invalid_input(fmt::format("{}: text_config is not an object", config_path));
        config.text = *nested;
        // Written beside text_config, though it is the text model's.
        for (const char* key : {"tie_word_embeddings", "eos_token_id"}) {
            if (!config.text.contains(key) && config.raw.contains(key)) config.text[key] = config.raw[key];
        }
    }
    if (!generation_text.empty()) {
        const auto path = (std::filesystem::path(folder) / "generation_config.json").string();
        TRY(read_generation(generation_text, path, config.generation));
    }
    TRY(add_eos_ids(config.text, config_path, config.generation.eos_ids));
    return config;
}

Result<HfConfig> read_hf_config(const std::string& folder) {
    const auto base = std::filesystem::path(folder);
    TRY_ASSIGN(const auto config_text, read_file((base / "config.json").string(), kConfigBytesMax));
    std::string generation_text;
    std::error_code error;
    if (const auto path = base / "generation_config.json"; std::filesystem::exists(path, error)) {
        TRY_ASSIGN(generation_text, read_file(path.string(), kConfigBytesMax));
        if (generation_text.empty()) return invalid_input(fmt::format("{}: is empty, expected a JSON object", path.string()));
    }
    return parse_hf_config(config_text, generation_text, folder);
}

}  // namespace espalier::checkpoint
