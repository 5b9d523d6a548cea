#include "checkpoint/quant_declaration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::checkpoint {
namespace {

using testing::HasSubstr;

Json json(std::string_view text) {
    auto parsed = parse_json(text, "test");
    EXPECT_TRUE(parsed) << text;
    return parsed ? *parsed : Json();
}

Result<QuantDeclaration> declare(std::string_view quantization_config, std::string_view hf = "") {
    const Json config = {{"quantization_config", json(quantization_config)}};
    if (hf.empty()) return parse_quant_declaration(config, nullptr);
    const Json hf_json = {{"quantization", json(hf)}};
    return parse_quant_declaration(config, &hf_json);
}

FoundFormat found(std::string_view name, WeightLayout layout, bool has_input_scale = false) {
    return {name, normalise_name(name), layout, has_input_scale};
}

// What the declaration says about the inputs, or the error's text.
std::string verdict(const Result<QuantDeclaration>& declaration, const FoundFormat& format) {
    if (!declaration) return declaration.error().message;
    const auto check = check_declaration(*declaration, format);
    if (!check) return check.error().message;
    if (!check->overruled.empty()) return "note: " + check->overruled;
    switch (check->inputs) {
        case ClaimedInputs::unsaid: return "unsaid";
        case ClaimedInputs::unquantised: return "unquantised";
        case ClaimedInputs::fixed_scale: return "fixed_scale";
        case ClaimedInputs::per_token: return "per_token";
        case ClaimedInputs::per_block: return "per_block";
    }
    return "?";
}

constexpr auto kUp = "model.layers.0.mlp.up_proj";

TEST(QuantDeclaration, NoMetadataSaysNothing) {
    const auto declaration = parse_quant_declaration(json(R"({"hidden_size":1})"), nullptr);
    EXPECT_EQ(verdict(declaration, found(kUp, WeightLayout::nvfp4, true)), "unsaid");
    EXPECT_EQ(verdict(declaration, found(kUp, WeightLayout::bf16)), "unsaid");
}

TEST(QuantDeclaration, ModelOptAlgorithms) {
    const auto nvfp4 = declare(R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":[]})");
    EXPECT_EQ(verdict(nvfp4, found(kUp, WeightLayout::nvfp4, true)), "fixed_scale");
    EXPECT_EQ(verdict(nvfp4, found(kUp, WeightLayout::bf16)), "unsaid");  // an empty list and BF16 modules: normal
    EXPECT_THAT(verdict(nvfp4, found(kUp, WeightLayout::fp8_tensor, true)),
                HasSubstr("quant_algo is NVFP4, but the tensors of 'model.layers.0"));
    EXPECT_THAT(verdict(nvfp4, found(kUp, WeightLayout::nvfp4)), HasSubstr("has no input scale"));
    EXPECT_EQ(verdict(nvfp4, found("mtp.layers.0.mlp.up_proj", WeightLayout::nvfp4)),
              "fixed_scale");  // drafts from weights alone
    const auto weights_only = declare(R"({"quant_algo":"W4A16_NVFP4"})");
    EXPECT_EQ(verdict(weights_only, found(kUp, WeightLayout::nvfp4)), "unquantised");
    EXPECT_THAT(verdict(weights_only, found(kUp, WeightLayout::nvfp4, true)), HasSubstr("with an input scale"));
    EXPECT_EQ(verdict(declare(R"({"quant_algo":"FP8"})"), found(kUp, WeightLayout::fp8_tensor, true)), "fixed_scale");
    EXPECT_EQ(verdict(declare(R"({"quant_algo":"FP8_PER_CHANNEL_PER_TOKEN"})"), found(kUp, WeightLayout::fp8_channel)),
              "per_token");
}

TEST(QuantDeclaration, ExcludedModulesMustBePlain) {
    const auto declaration = declare(R"({"quant_algo":"NVFP4","ignore":["lm_head","mtp.fc*","model.visual*"]})");
    // A pattern may come from a default list; the tensors are plain.
    EXPECT_THAT(verdict(declaration, found("mtp.fc", WeightLayout::nvfp4, true)),
                HasSubstr("note: config.json: quantization_config.ignore lists 'mtp.fc*' as not quantised, but the tensors of "
                          "'mtp.fc' are nvfp4"));
    EXPECT_EQ(verdict(declaration, found("lm_head", WeightLayout::bf16)), "unsaid");
    EXPECT_EQ(verdict(declaration, found("mtp.layers.0.mlp.up_proj", WeightLayout::nvfp4, true)), "fixed_scale");
    EXPECT_THAT(verdict(declaration, found("lm_head", WeightLayout::nvfp4, true)),
                HasSubstr("quantization_config.ignore lists 'lm_head' as not quantised, but the tensors of 'lm_head' are nvfp4"));
}

TEST(QuantDeclaration, MixedPrecisionByName) {
    const auto declaration = declare(
        R"({"quant_algo":"MIXED_PRECISION","quantized_layers":{"model.layers.0.mlp.up_proj":{"quant_algo":"W4A16_NVFP4","group_size":16},
            "model.layers.0.self_attn.q_proj":{"quant_algo":"FP8"},"model.layers.9.mlp.up_proj":{"quant_algo":"FP8"}}})");
    EXPECT_EQ(verdict(declaration, found(kUp, WeightLayout::nvfp4)), "unquantised");
    EXPECT_EQ(verdict(declaration, found("model.language_model.layers.0.mlp.up_proj", WeightLayout::nvfp4)), "unquantised");
    EXPECT_EQ(verdict(declaration, found("model.layers.0.self_attn.q_proj", WeightLayout::fp8_tensor, true)), "fixed_scale");
    EXPECT_THAT(verdict(declaration, found("model.layers.0.self_attn.q_proj", WeightLayout::bf16)),
                HasSubstr("FP8, but the tensors"));
    EXPECT_THAT(verdict(declaration, found(kUp, WeightLayout::fp8_tensor, true)), HasSubstr("W4A16_NVFP4, but the tensors"));
}

TEST(QuantDeclaration, CompressedTensors) {
    const auto nvfp4 =
        declare(R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized","ignore":["lm_head","re:.*in_proj_a$"],
        "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float","group_size":16,"strategy":"tensor_group"},
        "input_activations":{"num_bits":4,"type":"float","dynamic":"local"}}},"kv_cache_scheme":{"num_bits":8,"type":"float"}})");
    EXPECT_EQ(verdict(nvfp4, found(kUp, WeightLayout::nvfp4, true)), "fixed_scale");
    EXPECT_THAT(verdict(nvfp4, found("model.layers.0.linear_attn.in_proj_a", WeightLayout::nvfp4, true)),
                HasSubstr("re:.*in_proj_a$"));
    EXPECT_TRUE(nvfp4->has_fp8_kv);
    const auto fp8 = [](std::string_view inputs, std::string_view targets = R"(["Linear"])") {
        return declare(
            std::string(R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"targets":)") +
            std::string(targets) + R"(,"weights":{"num_bits":8,"type":"float"},"input_activations":)" + std::string(inputs) +
            "}}}");
    };
    const auto channel = found(kUp, WeightLayout::fp8_channel);
    EXPECT_EQ(verdict(fp8(R"({"num_bits":8,"type":"float","strategy":"token","dynamic":true})"), channel), "per_token");
    EXPECT_EQ(verdict(fp8(R"({"num_bits":8,"type":"float","strategy":"group","group_size":128,"dynamic":true})"), channel),
              "per_block");
    EXPECT_EQ(verdict(fp8("null"), channel), "unquantised");
    const auto per_tensor = fp8(R"({"num_bits":8,"type":"float","strategy":"tensor","dynamic":true})");
    EXPECT_EQ(verdict(per_tensor, channel), "per_token");
    EXPECT_EQ(per_tensor->notes.size(), 1u);
    // A pattern that is not evaluated still says how FP8 modules take their inputs; one that is does not bind BF16 modules.
    EXPECT_EQ(verdict(fp8(R"({"num_bits":8,"strategy":"token","dynamic":true})", R"(["re:.*(up|down)_proj"])"), channel),
              "per_token");
    EXPECT_EQ(verdict(fp8("null", R"(["re:.*up_proj"])"), found(kUp, WeightLayout::bf16)), "unsaid");
    EXPECT_THAT(verdict(fp8("null", R"(["model.layers.0.mlp.up_proj"])"), found(kUp, WeightLayout::bf16)),
                HasSubstr("but the tensors"));
}

TEST(QuantDeclaration, BlockFp8) {
    const auto declaration =
        declare(R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","weight_block_size":[128,128],
                                         "modules_to_not_convert":["lm_head","mtp.fc"]})");
    EXPECT_EQ(verdict(declaration, found(kUp, WeightLayout::fp8_block)), "per_block");
    EXPECT_THAT(verdict(declaration, found("mtp.fc", WeightLayout::fp8_block)),
                HasSubstr("modules_to_not_convert lists 'mtp.fc'"));
}

TEST(QuantDeclaration, BothFilesMustAgree) {
    EXPECT_TRUE(declare(R"({"quant_algo":"NVFP4"})", R"({"quant_algo":"NVFP4","kv_cache_quant_algo":"FP8"})")->has_fp8_kv);
    const auto lie = declare(R"({"quant_algo":"NVFP4"})", R"({"quant_algo":"FP8"})");
    ASSERT_FALSE(lie);
    EXPECT_EQ(lie.error().code, ErrorCode::corrupt_data);
    EXPECT_THAT(lie.error().message, HasSubstr("config.json: quantization_config.quant_algo is NVFP4, but hf_quant_config.json"));
}

struct Refused {
    const char* config;
    const char* message;
};

const Refused kRefused[] = {
    {R"({"quant_method":"awq","bits":4})", "AWQ quantisation is not supported"},
    {R"({"quant_method":"gptq","bits":4})", "GPTQ quantisation"},
    {R"({"quant_method":"bitsandbytes","load_in_4bit":true})", "bitsandbytes quantisation"},
    {R"({"quant_method":"mxfp4"})", "MXFP4"},
    {R"({"quant_method":"never heard of"})", "quant_method 'never heard of'"},
    {R"({})", "quant_method ''"},
    {R"({"quant_algo":"W4A8_AWQ"})", "W4A8_AWQ"},
    {R"({"quant_algo":"NVFP4","group_size":32})", "group_size 32"},
    {R"({"quant_algo":"MIXED_PRECISION","quantized_layers":{"a.b":{"quant_algo":"INT8_SQ"}}})", "INT8_SQ"},
    {R"({"quant_method":"compressed-tensors","format":"int-quantized"})", "'int-quantized'"},
    {R"({"quant_method":"compressed-tensors","format":"pack-quantized"})", "'pack-quantized'"},
    {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"num_bits":8,"type":"int"}}}})",
     "int8 weight quantisation"},
    {R"({"quant_method":"compressed-tensors","transform_config":{"r":1}})", "weight transforms"},
    {R"({"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"}})", "sparse-24-bitmask"},
    {R"({"quant_method":"fp8","weight_block_size":[64,64]})", "[64,64]"},
    {R"({"quant_method":"fp8","fmt":"e5m2"})", "e5m2"},
};

TEST(QuantDeclaration, OtherMethodsAreRefusedByNameWithAdvice) {
    for (const auto& refused : kRefused) {
        SCOPED_TRACE(refused.config);
        const auto declaration = declare(refused.config);
        ASSERT_FALSE(declaration);
        EXPECT_EQ(declaration.error().code, ErrorCode::unsupported);
        EXPECT_THAT(declaration.error().message, HasSubstr(refused.message));
        EXPECT_THAT(declaration.error().message, HasSubstr("use an NVFP4 or FP8 checkpoint"));
    }
}

TEST(QuantDeclaration, WrongTypesAreErrorsNotCrashes) {
    for (const char* config :
         {R"([])", R"("nvfp4")", R"({"quant_method":3})", R"({"quant_algo":["NVFP4"]})",
          R"({"quant_algo":"NVFP4","ignore":"lm_head"})", R"({"quant_algo":"NVFP4","ignore":[1]})",
          R"({"quant_algo":"MIXED_PRECISION","quantized_layers":[]})",
          R"({"quant_algo":"MIXED_PRECISION","quantized_layers":{"a":{"quant_algo":1}}})",
          R"({"quant_method":"compressed-tensors","config_groups":[]})",
          R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"type":1}}}})",
          R"({"quant_method":"fp8","modules_to_not_convert":{}})", R"({"quant_method":"fp8","activation_scheme":1})"}) {
        const auto declaration = declare(config);
        ASSERT_FALSE(declaration) << config;
        EXPECT_EQ(declaration.error().code, ErrorCode::invalid_input) << config;
    }
}

}  // namespace
}  // namespace espalier::checkpoint
