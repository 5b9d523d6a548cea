#include "model/config.h"

#include <gtest/gtest.h>

namespace espalier::model {
namespace {

// The 27B text configuration, as published for the family.
Json config_27b() {
    return *parse_json(R"({"model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "hidden_act": "silu", "attention_bias": false,
        "attn_output_gate": true, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-06,
        "vocab_size": 248320, "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1, "eos_token_id": 248044,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25}})",
                       "test");
}

TEST(ModelConfig, ReadsThe27BShape) {
    const auto config = ModelConfig::parse(config_27b());
    ASSERT_TRUE(config.has_value()) << config.error().message;
    EXPECT_EQ(config->rotary_dim, 64);
    EXPECT_EQ(config->conv_channels(), 10240);
    EXPECT_EQ(config->layers[2], LayerKind::recurrent);
    EXPECT_EQ(config->layers[3], LayerKind::attention);
    EXPECT_EQ(config->layers[63], LayerKind::attention);
    EXPECT_EQ(config->eos_ids, std::vector<int32_t>{248044});
}

TEST(ModelConfig, NamesTheFieldThatIsWrong) {
    const auto error_of = [](const char* field, const Json& value) {
        Json config = config_27b();
        if (value.is_discarded()) config.erase(field);
        else config[field] = value;
        const auto parsed = ModelConfig::parse(config);
        EXPECT_FALSE(parsed.has_value()) << field;
        if (parsed) return std::string();
        EXPECT_NE(parsed.error().message.find(field), std::string::npos) << parsed.error().message;
        return parsed.error().message;
    };
    error_of("hidden_size", Json(Json::value_t::discarded));
    error_of("hidden_size", 5121);
    error_of("hidden_size", -16);
    error_of("hidden_size", 1.5);
    error_of("hidden_size", "5120");
    error_of("hidden_size", uint64_t{18446744073709551615u});
    error_of("num_attention_heads", 23);
    error_of("linear_num_value_heads", 17);
    error_of("hidden_act", "gelu");
    error_of("attention_bias", true);
    error_of("model_type", "llama");
    error_of("linear_conv_kernel_dim", 3);
    error_of("rms_norm_eps", 0);
    error_of("layer_types", Json::array({"full_attention"}));
}

TEST(ModelConfig, RefusesScaledRope) {
    Json config = config_27b();
    config["rope_parameters"]["rope_type"] = "yarn";
    const auto parsed = ModelConfig::parse(config);
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().code, ErrorCode::unsupported);
}

TEST(ModelConfig, DerivesLayersFromTheIntervalOrReadsThem) {
    Json config = config_27b();
    config["num_hidden_layers"] = 3;
    config["layer_types"] = {"full_attention", "linear_attention", "full_attention"};
    EXPECT_EQ(ModelConfig::parse(config)->layers[0], LayerKind::attention);
    config["layer_types"][1] = "mamba";
    EXPECT_FALSE(ModelConfig::parse(config).has_value());
}

}  // namespace
}  // namespace espalier::model
