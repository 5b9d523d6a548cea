#include "app/model_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"

namespace espalier::app {
namespace {

constexpr size_t kTextFileMax = size_t{8} << 20;

// The template's source, empty if the folder has none.
Result<std::string> template_source(const std::string& model_path, const std::string& override_path) {
    if (!override_path.empty()) return read_file(override_path, kTextFileMax);
    const std::string own = model_path + "/chat_template.jinja";
    if (std::filesystem::exists(own)) return read_file(own, kTextFileMax);
    const std::string config_path = model_path + "/tokenizer_config.json";
    if (!std::filesystem::exists(config_path)) return std::string();
    TRY_ASSIGN(const std::string text, read_file(config_path, kTextFileMax));
    TRY_ASSIGN(const Json config, parse_json(text, config_path));
    if (!config.is_object()) return invalid_input(fmt::format("{}: expected a JSON object", config_path));
    const auto found = config.find("chat_template");
    return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<server::SamplingDefaults> sampling_defaults(const std::string& model_path) {
    server::SamplingDefaults defaults;
    const std::string path = model_path + "/generation_config.json";
    if (!std::filesystem::exists(path)) return defaults;
    TRY_ASSIGN(const std::string text, read_file(path, kTextFileMax));
    TRY_ASSIGN(const Json config, parse_json(text, path));
    if (!config.is_object()) return invalid_input(fmt::format("{}: expected a JSON object", path));
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

Result<ModelFiles> load_model_files(const std::string& model_path, const std::string& chat_template_path) {
    ModelFiles files;
    TRY_ASSIGN(files.tokenizer, text::Tokenizer::load(model_path));
    TRY_ASSIGN(const std::string source, template_source(model_path, chat_template_path));
    if (!source.empty()) {
        TRY_ASSIGN(files.chat_template, text::ChatTemplate::parse(source));
        files.tool_format = text::detect_tool_format(source);
    }
    TRY_ASSIGN(files.sampling, sampling_defaults(model_path));
    return files;
}

}  // namespace espalier::app
