#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

namespace espalier::model {
namespace {

// Generous bounds that no real file reaches; they keep later size arithmetic far from overflow.
constexpr int64_t kSizeMax = 1 << 20;
constexpr int64_t kVocabMax = 1 << 24;
constexpr int64_t kContextMax = 1 << 24;

std::string shown(const Json& value) {
    std::string text = dump_json(value);
    if (text.size() > 40) text = text.substr(0, 40) + "...";
    return text;
}

Result<int64_t> integer(const Json& config, const char* field, int64_t low, int64_t high) {
    const auto found = config.find(field);
    if (found == config.end()) return invalid_input(fmt::format("config.json: field {} is missing", field));
    if (!found->is_number_integer()) {
        return invalid_input(fmt::format("config.json: {} is {}, expected an integer", field, shown(*found)));
    }
    if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return invalid_input(fmt::format("config.json: {} is {}, expected {} to {}", field, shown(*found), low, high));
    }
    const auto value = found->get<int64_t>();
    if (value < low || value > high) {
        return invalid_input(fmt::format("config.json: {} is {}, expected {} to {}", field, value, low, high));
    }
    return value;
}

Result<double> number_or(const Json& config, const char* field, double otherwise) {
    const auto found = config.find(field);
    if (found == config.end() || found->is_null()) return otherwise;
    if (!found->is_number()) return invalid_input(fmt::format("config.json: {} is {}, expected a number", field, shown(*found)));
    return found->get<double>();
}

Status require_value(const Json& config, const char* field, const Json& supported) {
    const auto found = config.find(field);
    if (found == config.end() || found->is_null() || *found == supported) return {};
    return unsupported(fmt::format("config.json: {} is {}, only {} is supported", field, shown(*found), dump_json(supported)));
}

Status parse_sizes(const Json& c, ModelConfig& m) {
    struct Field {
        const char* name;
        int32_t* target;
        int64_t high;
    };
    const Field fields[] = {
        {"hidden_size", &m.hidden, kSizeMax},
        {"intermediate_size", &m.intermediate, kSizeMax},
        {"num_hidden_layers", &m.n_layers, 1024},
        {"vocab_size", &m.vocab, kVocabMax},
        {"num_attention_heads", &m.n_heads, 4096},
        {"num_key_value_heads", &m.n_kv_heads, 4096},
        {"head_dim", &m.head_dim, 256},
        {"linear_num_key_heads", &m.n_key_heads, 4096},
        {"linear_num_value_heads", &m.n_value_heads, 4096},
        {"linear_key_head_dim", &m.key_dim, 256},
        {"linear_value_head_dim", &m.value_dim, 256},
        {"max_position_embeddings", &m.context_trained, kContextMax},
    };
    for (const Field& field : fields) {
        TRY_ASSIGN(const int64_t value, integer(c, field.name, 1, field.high));
        *field.target = static_cast<int32_t>(value);
    }
    const auto multiple = [](const char* name, int64_t value, int64_t of) -> Status {
        if (value % of == 0) return {};
        return unsupported(fmt::format("config.json: {} is {}, expected a multiple of {}", name, value, of));
    };
    TRY(multiple("hidden_size", m.hidden, 16));
    TRY(multiple("intermediate_size", m.intermediate, 16));
    TRY(multiple("head_dim", m.head_dim, 16));
    TRY(multiple("linear_key_head_dim", m.key_dim, 16));
    TRY(multiple("linear_value_head_dim", m.value_dim, 16));
    TRY(multiple("num_attention_heads", m.n_heads, m.n_kv_heads));
    TRY(multiple("linear_num_value_heads", m.n_value_heads, m.n_key_heads));
    return {};
}

Status parse_rope(const Json& c, ModelConfig& m) {
    const Json* rope = &c;  // older files keep theta at the top level
    if (const auto found = c.find("rope_parameters"); found != c.end() && found->is_object()) rope = &*found;
    else if (const auto scaling = c.find("rope_scaling"); scaling != c.end() && scaling->is_object()) rope = &*scaling;
    if (const auto type = rope->find("rope_type"); type != rope->end() && !type->is_null() && *type != "default") {
        return unsupported(fmt::format("config.json: rope_type is {}, only \"default\" is supported", shown(*type)));
    }
    const Json& theta_home = rope->contains("rope_theta") ? *rope : c;
    TRY_ASSIGN(m.rope_theta, number_or(theta_home, "rope_theta", 1e7));
    const Json& factor_home = rope->contains("partial_rotary_factor") ? *rope : c;
    TRY_ASSIGN(const double factor, number_or(factor_home, "partial_rotary_factor", 0.25));
    if (!(m.rope_theta > 1) || !(factor > 0) || factor > 1) {
        return invalid_input(
            fmt::format("config.json: rope_theta {} or partial_rotary_factor {} is out of range", m.rope_theta, factor));
    }
    m.rotary_dim = static_cast<int32_t>(factor * m.head_dim);
    if (m.rotary_dim < 2 || m.rotary_dim % 2 != 0) {
        return invalid_input(
            fmt::format("config.json: rotary dimension is {}, expected an even number of at least 2", m.rotary_dim));
    }
    return {};
}

Status parse_layers(const Json& c, ModelConfig& m) {
    const auto types = c.find("layer_types");
    if (types == c.end() || types->is_null()) {
        int64_t interval = 4;
        if (c.contains("full_attention_interval")) {
            TRY_ASSIGN(interval, integer(c, "full_attention_interval", 1, 1024));
        }
        for (int32_t i = 0; i < m.n_layers; ++i) {
            m.layers.push_back((i + 1) % interval == 0 ? LayerKind::attention : LayerKind::recurrent);
        }
        return {};
    }
    if (!types->is_array() || types->size() != static_cast<size_t>(m.n_layers)) {
        return invalid_input(fmt::format("config.json: layer_types has {} entries, num_hidden_layers is {}",
                                         types->is_array() ? types->size() : 0, m.n_layers));
    }
    for (const Json& type : *types) {
        if (type == "full_attention") m.layers.push_back(LayerKind::attention);
        else if (type == "linear_attention") m.layers.push_back(LayerKind::recurrent);
        else
            return unsupported(
                fmt::format("config.json: layer type {} is not supported (linear_attention, full_attention)", shown(type)));
    }
    return {};
}

void parse_eos(const Json& c, ModelConfig& m) {
    const auto eos = c.find("eos_token_id");
    if (eos == c.end()) return;
    if (eos->is_number_integer()) m.eos_ids.push_back(eos->get<int32_t>());
    if (eos->is_array()) {
        for (const Json& id : *eos) {
            if (id.is_number_integer()) m.eos_ids.push_back(id.get<int32_t>());
        }
    }
}

}  // namespace

Result<ModelConfig> ModelConfig::parse(const Json& c) {
    if (!c.is_object()) return invalid_input("config.json: not a JSON object");
    const auto type = c.find("model_type");
    if (type == c.end() || (*type != "qwen3_5_text" && *type != "qwen3_5")) {
        return unsupported(fmt::format("config.json: model_type is {}, supported: qwen3_5, qwen3_5_text",
                                       type == c.end() ? "missing" : shown(*type)));
    }
    ModelConfig m;
    TRY(parse_sizes(c, m));
    TRY(require_value(c, "hidden_act", "silu"));
    TRY(require_value(c, "attention_bias", false));
    TRY(require_value(c, "attn_output_gate", true));
    TRY(require_value(c, "linear_conv_kernel_dim", 4));
    TRY(require_value(c, "mtp_use_dedicated_embeddings", false));
    TRY_ASSIGN(const double eps, number_or(c, "rms_norm_eps", 1e-6));
    if (!(eps > 0) || eps > 1) return invalid_input(fmt::format("config.json: rms_norm_eps is {}, expected 0 to 1", eps));
    m.rms_eps = static_cast<float>(eps);
    TRY(parse_rope(c, m));
    TRY(parse_layers(c, m));
    if (std::find(m.layers.begin(), m.layers.end(), LayerKind::attention) == m.layers.end()) {
        return unsupported("config.json: layer_types has no full_attention layer, at least one is needed");
    }
    if (c.contains("mtp_num_hidden_layers") && c["mtp_num_hidden_layers"].is_number_integer()) {
        TRY_ASSIGN(const int64_t n_mtp, integer(c, "mtp_num_hidden_layers", 0, 16));
        m.n_mtp_layers = static_cast<int32_t>(n_mtp);
    }
    parse_eos(c, m);
    return m;
}

}  // namespace espalier::model
