// The sizes and constants of a Qwen3.5-family text model, read from config.json (docs: qwen3_5_text).
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace espalier::model {

enum class LayerKind : uint8_t { recurrent, attention };

struct ModelConfig {
    int32_t hidden = 0;
    int32_t intermediate = 0;
    int32_t n_layers = 0;
    int32_t vocab = 0;
    float rms_eps = 1e-6f;

    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;
    int32_t rotary_dim = 0;  // the first dims of a head that rotate; even
    double rope_theta = 1e7;
    int32_t context_trained = 0;

    int32_t n_key_heads = 0;  // recurrent layers
    int32_t n_value_heads = 0;
    int32_t key_dim = 0;
    int32_t value_dim = 0;

    int32_t n_mtp_layers = 0;  // as declared; the tensors decide
    std::vector<int32_t> eos_ids;
    std::vector<LayerKind> layers;

    int32_t conv_channels() const { return 2 * n_key_heads * key_dim + n_value_heads * value_dim; }
    int32_t value_width() const { return n_value_heads * value_dim; }
    int32_t q_width() const { return n_heads * head_dim; }
    int32_t kv_width() const { return n_kv_heads * head_dim; }

    // Errors: invalid_input naming the field, what was found and what is supported.
    static Result<ModelConfig> parse(const Json& text_config);
};

}  // namespace espalier::model
