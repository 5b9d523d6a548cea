#include "quant/metadata.h"

#include <filesystem>

#include "base/mapped_file.h"

namespace espalier::quant {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFileBytesMax = 256 << 20;
constexpr const char* kCopied[] = {"generation_config.json",
                                   "tokenizer.json",
                                   "tokenizer_config.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "added_tokens.json",
                                   "special_tokens_map.json",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "preprocessor_config.json",
                                   "video_preprocessor_config.json",
                                   "LICENSE"};

Json producer(const std::string& version) {
    return {{"name", "espalier"}, {"version", version}};
}

std::string algorithm(Recipe recipe) {
    switch (recipe) {
        case Recipe::nvfp4: return "NVFP4";
        case Recipe::nvfp4_w4a16: return "W4A16_NVFP4";
        case Recipe::fp8:
        case Recipe::fp8_block: break;
    }
    return "FP8";
}

// ModelOpt's spelling.
Json modelopt_section(const Plan& plan, const std::string& version) {
    Json numbers = {{"dynamic", false}, {"num_bits", is_nvfp4(plan.choices.recipe) ? 4 : 8}, {"type", "float"}};
    if (is_nvfp4(plan.choices.recipe)) numbers["group_size"] = 16;
    Json group = Json::object();
    if (has_input_scales(plan.choices.recipe)) group["input_activations"] = numbers;
    group["weights"] = numbers;
    group["targets"] = {"Linear"};
    Json section = {
        {"config_groups", {{"group_0", group}}}, {"ignore", plan.excluded}, {"quant_algo", algorithm(plan.choices.recipe)}};
    if (!plan.kv.empty()) section["kv_cache_scheme"] = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
    section["producer"] = producer(version);
    section["quant_method"] = "modelopt";
    return section;
}

// The spelling of Qwen's FP8 releases.
Json block_fp8_section(const Plan& plan) {
    Json section = {{"activation_scheme", "dynamic"},
                    {"fmt", "e4m3"},
                    {"modules_to_not_convert", plan.plain},
                    {"quant_method", "fp8"},
                    {"weight_block_size", {128, 128}}};
    if (!plan.kv.empty()) section["kv_cache_scheme"] = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
    return section;
}

}  // namespace

Json quantised_config(const Json& config, const Plan& plan, const std::string& version) {
    Json out = config;
    if (plan.unties_head) {
        out["tie_word_embeddings"] = false;
        if (out.contains("text_config") && out["text_config"].is_object()) out["text_config"]["tie_word_embeddings"] = false;
    }
    out["quantization_config"] =
        plan.choices.recipe == Recipe::fp8_block ? block_fp8_section(plan) : modelopt_section(plan, version);
    return out;
}

Json hf_quant_config(const Plan& plan, const std::string& version) {
    if (plan.choices.recipe == Recipe::fp8_block) return nullptr;
    Json quantization = {{"quant_algo", algorithm(plan.choices.recipe)},
                         {"kv_cache_quant_algo", plan.kv.empty() ? Json(nullptr) : Json("FP8")}};
    if (is_nvfp4(plan.choices.recipe)) quantization["group_size"] = 16;
    quantization["exclude_modules"] = plan.excluded;
    return {{"producer", producer(version)}, {"quantization", quantization}};
}

Status write_metadata(const std::string& source, const std::string& destination, const Json& config, const Plan& plan,
                      const std::string& version) {
    std::error_code error;
    for (const char* name : kCopied) {
        const fs::path from = fs::path(source) / name;
        if (!fs::is_regular_file(from, error)) continue;
        TRY_ASSIGN(const std::string bytes, read_file(from.string(), kFileBytesMax));
        TRY(write_file_atomic((fs::path(destination) / name).string(), bytes));
    }
    if (const Json quant = hf_quant_config(plan, version); !quant.is_null()) {
        TRY(write_file_atomic((fs::path(destination) / "hf_quant_config.json").string(), dump_json(quant, 4) + "\n"));
    }
    const Json written = quantised_config(config, plan, version);
    return write_file_atomic((fs::path(destination) / "config.json").string(), dump_json(written, 2) + "\n");
}

}  // namespace espalier::quant
