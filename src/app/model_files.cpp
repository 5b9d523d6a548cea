#include "app/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/gguf_text.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/gguf_files.h"

namespace espalier::app {
namespace {

constexpr size_t kTextFileMax = size_t{8} << 20;

// An empty object if the folder has no such file.
Result<Json> json_file(const std::string& model_path, const char* name) {
    const std::string path = fmt::format("{}/{}", model_path, name);
    if (!std::filesystem::exists(path)) return Json::object();
    TRY_ASSIGN(const std::string text, read_file(path, kTextFileMax));
    TRY_ASSIGN(Json config, parse_json(text, path));
    if (!config.is_object()) return invalid_input(fmt::format("{}: expected a JSON object", path));
    return config;
}

// The template's source, empty if the folder has none.
Result<std::string> template_source(const std::string& model_path, const std::string& override_path, const Json& config) {
    if (!override_path.empty()) return read_file(override_path, kTextFileMax);
    const std::string own = model_path + "/chat_template.jinja";
    if (std::filesystem::exists(own)) return read_file(own, kTextFileMax);
    const auto found = config.find("chat_template");
    return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<int32_t> stop_tokens(const text::Tokenizer& tokenizer, const std::string& template_text, const Json& config) {
    std::vector<int32_t> ids;
    const auto add = [&](const std::string& token) {
        const int32_t id = tokenizer.added_token_id(token);
        if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    };
    if (const auto eos = config.find("eos_token"); eos != config.end()) {
        if (eos->is_string()) add(eos->get<std::string>());
        else if (eos->is_object() && eos->contains("content") && (*eos)["content"].is_string())
            add((*eos)["content"].get<std::string>());
    }
    if (template_text.find("<|im_end|>") != std::string::npos) add("<|im_end|>");
    return ids;
}

server::SamplingDefaults sampling_defaults(const Json& config) {
    server::SamplingDefaults defaults;
    const auto number = [&](const char* name, float low, float high, float& target) {
        const auto found = config.find(name);
        if (found == config.end() || !found->is_number()) return;
        const auto value = found->get<float>();
        if (value >= low && value <= high) target = value;
    };
    number("temperature", 0.0f, 100.0f, defaults.temperature);
    number("top_p", 0.0f, 1.0f, defaults.top_p);
    number("min_p", 0.0f, 1.0f, defaults.min_p);
    number("repetition_penalty", 0.01f, 100.0f, defaults.repetition_penalty);
    if (const auto k = config.find("top_k"); k != config.end() && k->is_number_integer() && *k >= 0 && *k <= 1'000'000) {
        defaults.top_k = k->get<int32_t>();
    }
    return defaults;
}

}  // namespace

std::vector<int32_t> all_stop_ids(std::span<const int32_t> from_weights, const ModelFiles& files) {
    std::vector<int32_t> ids(from_weights.begin(), from_weights.end());
    for (const int32_t id : files.stop_ids) {
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return ids;
}

Result<ModelFiles> load_model_files(const std::string& model_path, const std::string& chat_template_path) {
    ModelFiles files;
    Json config;
    Json generation;
    if (checkpoint::is_gguf(model_path)) {
        TRY_ASSIGN(GgufText text, read_gguf_text(model_path));
        files.tokenizer = std::move(text.tokenizer);
        config = std::move(text.tokenizer_config);
        generation = std::move(text.generation_config);
    } else {
        TRY_ASSIGN(files.tokenizer, text::Tokenizer::load(model_path));
        TRY_ASSIGN(config, json_file(model_path, "tokenizer_config.json"));
        TRY_ASSIGN(generation, json_file(model_path, "generation_config.json"));
    }
    TRY_ASSIGN(const std::string source, template_source(model_path, chat_template_path, config));
    files.stop_ids = stop_tokens(*files.tokenizer, source, config);
    if (!source.empty()) {
        TRY_ASSIGN(files.chat_template, text::ChatTemplate::parse(source));
        files.tool_format = text::detect_tool_format(source);
    }
    files.sampling = sampling_defaults(generation);
    return files;
}

}  // namespace espalier::app
