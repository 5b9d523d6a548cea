#include "checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "checkpoint/names.h"

namespace espalier::checkpoint {
namespace {

constexpr int64_t kIntegerMax = 1 << 24;
constexpr int64_t kLayersMax = 1024;

// Reads entries of one architecture: "block_count" means "qwen35.block_count".
class Entries {
public:
    Entries(const GgufMetadata& metadata, std::string architecture, std::string_view what)
        : metadata_(metadata), architecture_(std::move(architecture)), what_(what) {}

    const GgufValue* find(std::string_view key) const { return find_entry(metadata_, full(key)); }

    Result<int64_t> integer(std::string_view key, int64_t low, int64_t high) const {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing(key);
        const auto number = value->single_integer();
        if (number && *number >= low && *number <= high) return *number;
        return invalid_input(
            fmt::format("{}: {} is {}, expected a whole number from {} to {}", what_, full(key), value->describe(), low, high));
    }

    Result<int64_t> integer_or(std::string_view key, int64_t otherwise, int64_t low, int64_t high) const {
        return find(key) == nullptr ? Result<int64_t>(otherwise) : integer(key, low, high);
    }

    Result<double> positive(std::string_view key) const {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing(key);
        const auto number = value->is_array() ? std::nullopt : value->number();
        if (number && std::isfinite(*number) && *number > 0) return *number;
        return invalid_input(fmt::format("{}: {} is {}, expected a number above 0", what_, full(key), value->describe()));
    }

    std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

private:
    Error missing(std::string_view key) const {
        return invalid_input(
            fmt::format("{}: metadata '{}' is missing; convert the model again with a current tool", what_, full(key)));
    }

    const GgufMetadata& metadata_;
    std::string architecture_;
    std::string_view what_;
};

Status add_sizes(const Entries& entries, Json& config, std::string_view what) {
    TRY_ASSIGN(const int64_t n_mtp, entries.integer_or("nextn_predict_layers", 0, 0, kLayersMax));
    if (n_mtp > 1) {
        return unsupported(
            fmt::format("{}: {} is {}, at most one MTP layer is supported", what, entries.full("nextn_predict_layers"), n_mtp));
    }
    TRY_ASSIGN(const int64_t n_blocks, entries.integer("block_count", 1 + n_mtp, kLayersMax));
    config["num_hidden_layers"] = n_blocks - n_mtp;
    config["mtp_num_hidden_layers"] = n_mtp;
    struct Field {
        const char* ours;
        const char* gguf;
    };
    constexpr Field kFields[] = {{"hidden_size", "embedding_length"},
                                 {"intermediate_size", "feed_forward_length"},
                                 {"num_attention_heads", "attention.head_count"},
                                 {"num_key_value_heads", "attention.head_count_kv"},
                                 {"head_dim", "attention.key_length"},
                                 {"max_position_embeddings", "context_length"},
                                 {"linear_num_key_heads", "ssm.group_count"},
                                 {"linear_num_value_heads", "ssm.time_step_rank"},
                                 {"linear_key_head_dim", "ssm.state_size"},
                                 {"linear_conv_kernel_dim", "ssm.conv_kernel"}};
    for (const Field& field : kFields) {
        TRY_ASSIGN(const int64_t value, entries.integer(field.gguf, 1, kIntegerMax));
        config[field.ours] = value;
    }
    const auto same = [&](const char* key, int64_t expected) -> Status {
        TRY_ASSIGN(const int64_t value, entries.integer_or(key, expected, 1, kIntegerMax));
        if (value == expected) return {};
        return unsupported(fmt::format("{}: {} is {}, expected {}", what, entries.full(key), value, expected));
    };
    TRY(same("attention.value_length", config["head_dim"].get<int64_t>()));
    const auto n_key_heads = config["linear_num_key_heads"].get<int64_t>();
    const auto n_value_heads = config["linear_num_value_heads"].get<int64_t>();
    TRY_ASSIGN(const int64_t inner, entries.integer("ssm.inner_size", 1, kIntegerMax));
    if (inner % n_value_heads != 0 || n_value_heads % n_key_heads != 0) {
        return invalid_input(fmt::format("{}: {} {} value columns, {} value heads and {} key heads do not divide", what,
                                         entries.full("ssm"), inner, n_value_heads, n_key_heads));
    }
    config["linear_value_head_dim"] = inner / n_value_heads;
    return {};
}

Status add_rope(const Entries& entries, Json& config, std::string_view what) {
    TRY_ASSIGN(const double eps, entries.positive("attention.layer_norm_rms_epsilon"));
    // Stored as float: the decimal number that was meant is the shortest one that gives this float.
    config["rms_norm_eps"] = std::stod(fmt::format("{}", static_cast<float>(eps)));
    TRY_ASSIGN(const double theta, entries.positive("rope.freq_base"));
    const auto head_dim = config["head_dim"].get<int64_t>();
    TRY_ASSIGN(const int64_t rotary, entries.integer_or("rope.dimension_count", head_dim, 2, head_dim));
    // One step up, so that the factor times the head size is not just below the whole number that it stands for.
    const double factor = static_cast<double>(rotary) / static_cast<double>(head_dim);
    config["rope_parameters"] = {{"rope_type", "default"},
                                 {"rope_theta", theta},
                                 {"partial_rotary_factor", rotary == head_dim ? 1.0 : std::nextafter(factor, 1.0)}};
    const GgufValue* scaling = entries.find("rope.scaling.type");
    if (scaling != nullptr && scaling->text() != "none") {
        return unsupported(
            fmt::format("{}: {} is {}, only 'none' is supported", what, entries.full("rope.scaling.type"), scaling->describe()));
    }
    return {};
}

Status add_layers(const Entries& entries, Json& config, std::string_view what) {
    const GgufValue* recurrent = entries.find("attention.recurrent_layers");
    if (recurrent == nullptr) {
        TRY_ASSIGN(const int64_t interval, entries.integer_or("full_attention_interval", 4, 1, kLayersMax));
        config["full_attention_interval"] = interval;
        return {};
    }
    // The MTP layer may be listed too.
    const auto n_layers = config["num_hidden_layers"].get<size_t>();
    Json types = Json::array();
    for (size_t i = 0; i < n_layers; ++i) {
        const auto flag = recurrent->boolean(i);
        const auto number = recurrent->integer(i);
        if (!recurrent->is_array() || (!flag && !number)) {
            return invalid_input(fmt::format("{}: {} is {}, expected {} truth values", what,
                                             entries.full("attention.recurrent_layers"), recurrent->describe(), n_layers));
        }
        types.push_back(flag.value_or(number.value_or(0) != 0) ? "linear_attention" : "full_attention");
    }
    config["layer_types"] = std::move(types);
    return {};
}

Status add_stop_ids(const GgufMetadata& metadata, HfConfig& config, std::string_view what) {
    Json ids = Json::array();
    for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
        const GgufValue* found = find_entry(metadata, key);
        if (found == nullptr) continue;
        const auto id = found->single_integer();
        if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max())
            return invalid_input(fmt::format("{}: {} is {}, expected a token id", what, key, found->describe()));
        if (std::find(ids.begin(), ids.end(), *id) != ids.end()) continue;
        ids.push_back(*id);
        config.generation.eos_ids.push_back(static_cast<int32_t>(*id));
    }
    if (!ids.empty()) config.text["eos_token_id"] = std::move(ids);
    return {};
}

// Sampling advice; a value of another kind is not worth refusing a model for.
void add_sampling(const GgufMetadata& metadata, GenerationDefaults& defaults) {
    const auto value = [&](const char* key) -> const GgufValue* {
        const GgufValue* found = find_entry(metadata, key);
        return found == nullptr || found->is_array() ? nullptr : found;
    };
    if (const auto* found = value("general.sampling.temp")) defaults.temperature = found->number();
    if (const auto* found = value("general.sampling.top_p")) defaults.top_p = found->number();
    if (const auto* found = value("general.sampling.top_k")) defaults.top_k = found->integer();
}

}  // namespace

Result<HfConfig> config_of_gguf(const GgufMetadata& metadata, int64_t vocab, std::string_view what) {
    const GgufValue* found = find_entry(metadata, "general.architecture");
    const auto architecture = found == nullptr ? std::nullopt : found->text();
    if (!architecture || *architecture != "qwen35") {
        return unsupported(fmt::format("{}: general.architecture is {}, supported: 'qwen35' (Qwen3.5 and Qwen3.6, dense)", what,
                                       found == nullptr ? "missing" : found->describe()));
    }
    const Entries entries(metadata, std::string(*architecture), what);
    HfConfig config;
    config.text = {{"architectures", {"qwen35"}}, {"model_type", "qwen3_5_text"}, {"vocab_size", vocab}};
    TRY(add_sizes(entries, config.text, what));
    TRY(add_rope(entries, config.text, what));
    TRY(add_layers(entries, config.text, what));
    TRY(add_stop_ids(metadata, config, what));
    add_sampling(metadata, config.generation);
    config.raw = config.text;
    return config;
}

}  // namespace espalier::checkpoint
