// Checkpoint over whole folders: the reference checkpoints, small ones of every layout, and damaged ones.
#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/reference_checkpoint.h"
#include "checkpoint/test_folder.h"
#include "checkpoint/values.h"

namespace espalier::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kUp = "layers.0.mlp.up_proj";
constexpr auto kUpInFile = "model.layers.0.mlp.up_proj";

// Writes a folder with that config and those tensors and opens it.
Result<std::unique_ptr<Checkpoint>> open_with(const TestFolder& folder, const std::vector<TensorToWrite>& tensors,
                                              std::string_view config = R"({"hidden_size":32})") {
    folder.write("config.json", config);
    EXPECT_TRUE(write_safetensors(folder.path("model.safetensors"), tensors));
    return Checkpoint::open(folder.path());
}

// The error of opening or of asking for kUp as n x k, whichever comes first; "none" when both succeed.
std::string first_error(const TestFolder& folder, const std::vector<TensorToWrite>& tensors, int64_t n, int64_t k) {
    auto checkpoint = open_with(folder, tensors);
    if (!checkpoint) return checkpoint.error().message;
    const auto view = (*checkpoint)->linear(kUp, n, k);
    return view ? "none" : view.error().message;
}

TEST(ReferenceCheckpoints, ShardedNestedTied) {
    auto opened = Checkpoint::open(reference_checkpoint("tiny_a"));
    ASSERT_TRUE(opened) << opened.error().message;
    auto& checkpoint = **opened;
    EXPECT_EQ(checkpoint.text_config()["hidden_size"], 256);
    EXPECT_EQ(checkpoint.text_config()["tie_word_embeddings"], true);
    EXPECT_EQ(checkpoint.raw_config()["model_type"], "qwen3_5");
    EXPECT_THAT(checkpoint.generation_defaults().eos_ids, ElementsAre(1022, 1020));
    EXPECT_EQ(checkpoint.generation_defaults().temperature, 0.6);
    EXPECT_EQ(checkpoint.generation_defaults().top_k, 20);
    EXPECT_THAT(checkpoint.notes(), ElementsAre("21 visual tensors skipped (text only)"));
    const auto embedding = checkpoint.linear("embed_tokens", 1024, 256);
    ASSERT_TRUE(embedding) << embedding.error().message;
    EXPECT_EQ(embedding->layout, WeightLayout::bf16);
    EXPECT_EQ(embedding->data.size(), 1024u * 256 * 2);
    EXPECT_FALSE(checkpoint.has_linear("lm_head"));
    EXPECT_TRUE(checkpoint.has_linear("mtp.fc"));
    EXPECT_FALSE(checkpoint.has_linear("layers.0.linear_attn.conv1d"));
    const int64_t conv_shape[] = {256, 4};
    const auto conv = checkpoint.floats("layers.0.linear_attn.conv1d.weight", conv_shape);
    ASSERT_TRUE(conv) << conv.error().message;
    double square = 0;
    for (const float value : *conv) square += value * value;
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(conv->size())), 0.5, 0.05);  // made as N(0, 0.5)
    EXPECT_EQ(checkpoint.kv_scales("layers.3.self_attn")->k, 1.0f);
    EXPECT_FALSE(checkpoint.kv_scales("layers.3.self_attn")->is_declared);
}

// Asks for every tensor of a checkpoint in its own shape.
void use_everything(Checkpoint& checkpoint) {
    for (const auto& module : checkpoint.modules()) {
        const auto view = checkpoint.linear(module.name, module.n, module.k);
        ASSERT_TRUE(view) << view.error().message;
    }
    for (const auto& tensor : checkpoint.tensors()) {
        if (tensor.name.starts_with("visual.") || tensor.shape.size() == 2) continue;
        const auto values = checkpoint.floats(tensor.name, tensor.shape);
        ASSERT_TRUE(values) << values.error().message;
    }
}

TEST(ReferenceCheckpoints, EveryTensorIsUsedOrNamed) {
    for (const char* name : {"tiny_a", "tiny_b"}) {
        auto opened = Checkpoint::open(reference_checkpoint(name));
        ASSERT_TRUE(opened) << opened.error().message;
        EXPECT_THAT((*opened)->check_all_used().error().message,
                    AllOf(HasSubstr("embed_tokens.weight' BF16"), HasSubstr("more;")));
        use_everything(**opened);
        EXPECT_TRUE((*opened)->check_all_used()) << (*opened)->check_all_used().error().message;
    }
}

TEST(Checkpoint, Nvfp4InBothSpellingsIsTheSameWeight) {
    const TestFolder folder;
    auto tensors = nvfp4_module(kUpInFile, 3, 32);
    append(tensors, nvfp4_packed_module("language_model.model.layers.1.mlp.up_proj", 3, 32));
    auto opened = open_with(folder, tensors);
    ASSERT_TRUE(opened) << opened.error().message;
    for (const char* name : {kUp, "layers.1.mlp.up_proj"}) {
        const auto view = (*opened)->linear(name, 3, 32);
        ASSERT_TRUE(view) << view.error().message;
        EXPECT_EQ(view->layout, WeightLayout::nvfp4);
        EXPECT_EQ(view->activations, ActivationScheme::nvfp4_static);
        EXPECT_EQ(view->data.size(), 48u);
        EXPECT_EQ(view->data[5], std::byte{0x21});
        EXPECT_EQ(view->block_scales_e4m3.size(), 6u);
        ASSERT_EQ(view->row_scales.size(), 1u);
        EXPECT_EQ(view->row_scales[0].row_end, 3);
        EXPECT_EQ(view->row_scales[0].weight_scale, 0.5f);
        EXPECT_EQ(view->row_scales[0].input_scale, 0.25f);
    }
    EXPECT_TRUE((*opened)->check_all_used());
}

TEST(Checkpoint, WeightOnlyNvfp4HasNoActivationScheme) {
    const TestFolder folder;
    auto tensors = nvfp4_module(kUpInFile, 3, 32);
    erase_tensor(tensors, std::string(kUpInFile) + ".input_scale");
    auto opened = open_with(folder, tensors);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->linear(kUp, 3, 32)->activations, ActivationScheme::none);
}

struct Fp8Case {
    const char* scale;
    std::vector<int64_t> shape;
    const char* config;
    WeightLayout layout;
    ActivationScheme activations;
};

const Fp8Case kFp8Cases[] = {
    {"weight_scale", {}, R"({})", WeightLayout::fp8_tensor, ActivationScheme::none},
    {"weight_scale", {1}, R"({})", WeightLayout::fp8_tensor, ActivationScheme::none},
    {"weight_scale",
     {200, 1},
     R"({"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"targets":["Linear"],
        "weights":{"num_bits":8,"type":"float"},"input_activations":{"num_bits":8,"type":"float","strategy":"token","dynamic":true}}}}})",
     WeightLayout::fp8_channel,
     ActivationScheme::fp8_dynamic_token},
    {"weight_scale",
     {200},
     R"({"quantization_config":{"quant_algo":"FP8_PER_CHANNEL_PER_TOKEN"}})",
     WeightLayout::fp8_channel,
     ActivationScheme::fp8_dynamic_token},
    {"weight_scale_inv", {2, 3}, R"({})", WeightLayout::fp8_block, ActivationScheme::fp8_dynamic_block},
    {"weight_scale_inv",
     {2, 3},
     R"({"quantization_config":{"quant_method":"fp8","activation_scheme":"dynamic","weight_block_size":[128,128]}})",
     WeightLayout::fp8_block,
     ActivationScheme::fp8_dynamic_block},
    {"weight_scale", {2, 3}, R"({})", WeightLayout::fp8_block, ActivationScheme::none},
};

TEST(Checkpoint, Fp8Layouts) {
    for (const auto& c : kFp8Cases) {
        const TestFolder folder;
        auto opened = open_with(folder, fp8_module(kUpInFile, 200, 260, c.scale, c.shape), c.config);
        ASSERT_TRUE(opened) << opened.error().message;
        const auto view = (*opened)->linear(kUp, 200, 260);
        ASSERT_TRUE(view) << view.error().message;
        EXPECT_EQ(view->layout, c.layout);
        EXPECT_EQ(view->activations, c.activations) << c.config;
        if (c.layout == WeightLayout::fp8_tensor) EXPECT_EQ(view->row_scales.at(0).weight_scale, 0.5f);
        else EXPECT_EQ(view->scales, std::vector<float>(c.layout == WeightLayout::fp8_channel ? 200 : 6, 0.5f));
        EXPECT_TRUE((*opened)->check_all_used());
    }
}

TEST(Checkpoint, StaticFp8CarriesItsInputScale) {
    const TestFolder folder;
    auto tensors = fp8_module(kUpInFile, 200, 260, "weight_scale", {200, 1});
    tensors.push_back(make_floats(std::string(kUpInFile) + ".input_scale", {1}, {0.125f}));
    auto opened = open_with(folder, tensors);
    ASSERT_TRUE(opened) << opened.error().message;
    const auto view = (*opened)->linear(kUp, 200, 260);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->activations, ActivationScheme::fp8_static);
    EXPECT_EQ(view->row_scales.at(0).input_scale, 0.125f);
    EXPECT_TRUE((*opened)->check_all_used());
}

TEST(Checkpoint, KvScalesUnderEveryName) {
    const char* names[][2] = {{"k_proj.k_scale", "v_proj.v_scale"},
                              {"k_scale", "v_scale"},
                              {"attn.k_scale", "attn.v_scale"},
                              {"k_proj.output_scale", "v_proj.output_scale"}};
    for (const auto& [k_name, v_name] : names) {
        const TestFolder folder;
        const std::string attention = "model.layers.3.self_attn.";
        auto opened =
            open_with(folder, {make_floats(attention + k_name, {}, {0.5f}), make_floats(attention + v_name, {1}, {0.25f})});
        ASSERT_TRUE(opened) << opened.error().message;
        const auto scales = (*opened)->kv_scales("layers.3.self_attn");
        ASSERT_TRUE(scales) << scales.error().message;
        EXPECT_EQ(scales->k, 0.5f) << k_name;
        EXPECT_EQ(scales->v, 0.25f) << v_name;
        EXPECT_TRUE(scales->is_declared);
        EXPECT_TRUE((*opened)->check_all_used());  // whether or not the cache is FP8
        EXPECT_FALSE((*opened)->kv_scales("layers.7.self_attn")->is_declared);
    }
}

TEST(Checkpoint, KvScalesThatDisagreeOrAreNoScales) {
    const TestFolder folder;
    auto opened = open_with(
        folder, {make_floats("layers.3.self_attn.k_proj.k_scale", {}, {0.5f}),
                 make_floats("layers.3.self_attn.k_scale", {}, {0.25f}), make_floats("layers.7.self_attn.v_scale", {}, {0.0f})});
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_THAT((*opened)->kv_scales("layers.3.self_attn").error().message,
                HasSubstr("is 0.5 but 'layers.3.self_attn.k_scale' is 0.25"));
    EXPECT_THAT((*opened)->kv_scales("layers.7.self_attn").error().message, HasSubstr("is 0, expected a finite number > 0"));
}

TEST(Checkpoint, DeclaredFp8KvWithoutScalesIsOne) {
    const TestFolder folder;
    folder.write("hf_quant_config.json", R"({"quantization":{"quant_algo":"NVFP4","kv_cache_quant_algo":"FP8"}})");
    auto opened = open_with(folder, nvfp4_module(kUpInFile, 3, 32));
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE((*opened)->declares_fp8_kv());
    EXPECT_EQ((*opened)->kv_scales("layers.3.self_attn")->k, 1.0f);
    EXPECT_TRUE((*opened)->kv_scales("layers.3.self_attn")->is_declared);
}

TEST(Checkpoint, BadScalesAreNamed) {
    const std::string up = kUpInFile;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inf = std::numeric_limits<float>::infinity();
    struct Bad {
        TensorToWrite replacement;
        const char* message;
    };
    const Bad cases[] = {
        {make_floats(up + ".weight_scale_2", {}, {nan}), "weight_scale_2' is nan"},
        {make_floats(up + ".weight_scale_2", {}, {-1.0f}), "weight_scale_2' is -1"},
        {make_floats(up + ".weight_scale_2", {}, {inf}), "weight_scale_2' is inf"},
        {make_floats(up + ".weight_scale_2", {2}, {1.0f, 1.0f}), "expected one float"},
        {make_tensor(up + ".weight_scale_2", Dtype::u8, {}), "expected one float"},
        {make_floats(up + ".input_scale", {}, {0.0f}), "input_scale' is 0"},
        {make_tensor(up + ".weight_scale", Dtype::f8_e4m3, {3, 2}, 0x7f), "scale 0 is NaN"},
        {make_tensor(up + ".weight_scale", Dtype::f8_e4m3, {3, 2}, 0xb8), "scale 0 is negative"},
        {make_tensor(up + ".weight_scale", Dtype::f8_e4m3, {3, 1}, 0x38), "[3, 1], expected [3, 2]"},
        {make_floats(up + ".weight_scale", {3, 2}, std::vector<float>(6, 1.0f)), "expected F8_E4M3"},
        {make_tensor(up + ".weight_scale", Dtype::u8, {3, 1}), "MXFP4"},
    };
    for (const auto& bad : cases) {
        const TestFolder folder;
        auto tensors = nvfp4_module(up, 3, 32);
        replace_tensor(tensors, bad.replacement);
        EXPECT_THAT(first_error(folder, tensors, 3, 32), AllOf(HasSubstr(up), HasSubstr(bad.message)));
    }
    const TestFolder folder;
    auto tensors = fp8_module(up, 200, 260, "weight_scale", {200});
    replace_tensor(tensors, make_floats(up + ".weight_scale", {200}, std::vector<float>(200, nan)));
    EXPECT_THAT(first_error(folder, tensors, 200, 260), HasSubstr("scale 0 is nan"));
    replace_tensor(tensors, make_floats(up + ".weight_scale", {7}, std::vector<float>(7, 1)));
    EXPECT_THAT(first_error(folder, tensors, 200, 260), HasSubstr("expected one scale, [200] (per row) or [2, 3]"));
}

TEST(Checkpoint, MissingScalesAreNamed) {
    for (const char* suffix : {"weight_scale", "weight_scale_2"}) {
        const TestFolder folder;
        auto tensors = nvfp4_module(kUpInFile, 3, 32);
        erase_tensor(tensors, std::string(kUpInFile) + "." + suffix);
        EXPECT_THAT(first_error(folder, tensors, 3, 32),
                    HasSubstr("'model.layers.0.mlp.up_proj." + std::string(suffix) + "' is missing"));
    }
    const TestFolder folder;
    EXPECT_THAT(first_error(folder, {make_tensor("layers.0.mlp.up_proj.weight", Dtype::f8_e4m3, {4, 4})}, 4, 4),
                HasSubstr("weight_scale' is missing"));
    EXPECT_THAT(first_error(folder, {make_floats("layers.0.mlp.up_proj.weight_scale", {}, {1})}, 4, 4),
                HasSubstr("up_proj.weight' is missing"));
}

TEST(Checkpoint, ShapesAndTypesAreCompared) {
    const TestFolder folder;
    std::vector<TensorToWrite> tensors = {make_tensor("model.embed_tokens.weight", Dtype::bf16, {100, 8}),
                                          make_tensor("norm.weight", Dtype::u8, {8})};
    append(tensors, nvfp4_module("odd", 2, 24));
    auto opened = open_with(folder, tensors);
    ASSERT_FALSE(opened && (*opened)->linear("odd", 2, 24));
    tensors.resize(2);
    opened = open_with(folder, tensors);
    ASSERT_TRUE(opened) << opened.error().message;
    auto& checkpoint = **opened;
    EXPECT_THAT(checkpoint.linear("embed_tokens", 120, 8).error().message,
                AllOf(HasSubstr("'model.embed_tokens.weight' is BF16 [100, 8]"), HasSubstr("config.json asks for 120 x 8")));
    EXPECT_THAT(checkpoint.linear("lm_head", 100, 8).error().message,
                HasSubstr("'lm_head.weight' is missing, expected a matrix of 100 x 8"));
    const int64_t eight[] = {8};
    const int64_t nine[] = {9};
    EXPECT_THAT(checkpoint.floats("norm.weight", eight).error().message, HasSubstr("type U8, expected F32, BF16 or F16"));
    EXPECT_THAT(checkpoint.floats("norm.weight", nine).error().message, HasSubstr("shape [8], config.json asks for [9]"));
    EXPECT_THAT(checkpoint.floats("mtp.norm.weight", eight).error().message,
                HasSubstr("'mtp.norm.weight' is missing, expected shape [8]"));
    EXPECT_THAT(checkpoint.check_all_used().error().message, HasSubstr("'norm.weight' U8 [8]"));
}

TEST(Checkpoint, KMustBeAMultipleOfTheBlock) {
    const TestFolder folder;
    EXPECT_THAT(first_error(folder, nvfp4_module(kUpInFile, 2, 24), 2, 24),
                HasSubstr("K = 24 is not a multiple of the NVFP4 block of 16"));
}

TEST(Checkpoint, WeightsAtOddAddressesAreCopied) {
    const TestFolder folder;
    const std::vector<float> values = {1, 2, 3, 4};
    auto opened =
        open_with(folder, {make_tensor("a", Dtype::u8, {1}), make_floats("layers.0.mlp.up_proj.weight", {2, 2}, values)});
    ASSERT_TRUE(opened) << opened.error().message;
    const auto view = (*opened)->linear(kUp, 2, 2);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data.data()) % 4, 0u);
    EXPECT_EQ(reinterpret_cast<const float*>(view->data.data())[3], 4.0f);
    (*opened)->release(*view);
}

TEST(Checkpoint, ForeignQuantisationIsRefusedFromItsTensors) {
    struct Foreign {
        TensorToWrite tensor;
        const char* message;
    };
    const std::string up = kUpInFile;
    const Foreign cases[] = {
        {make_tensor(up + ".qweight", Dtype::i32, {4, 4}), "AWQ"},
        {make_tensor(up + ".SCB", Dtype::f32, {4}), "bitsandbytes"},
        {make_tensor(up + ".weight.absmax", Dtype::f32, {4}), "bitsandbytes"},
        {make_tensor(up + ".weight", Dtype::i8, {4, 4}), "int8"},
        {make_tensor(up + ".weight_packed", Dtype::i32, {4, 4}), "int4"},
        {make_tensor(up + ".pre_quant_scale", Dtype::bf16, {4}), "AWQ-smoothed"},
    };
    for (const auto& foreign : cases) {
        const TestFolder folder;
        const auto opened = open_with(folder, {foreign.tensor});
        ASSERT_FALSE(opened) << foreign.message;
        EXPECT_EQ(opened.error().code, ErrorCode::unsupported);
        EXPECT_THAT(opened.error().message, AllOf(HasSubstr(foreign.message), HasSubstr("use an NVFP4 or FP8 checkpoint")));
    }
}

TEST(Checkpoint, SpareMtpHeadIsSkippedWithANote) {
    const TestFolder folder;
    auto opened = open_with(folder, nvfp4_module("mtp.lm_head", 3, 32));
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_TRUE((*opened)->check_all_used());
    EXPECT_THAT((*opened)->notes(), ElementsAre(HasSubstr("4 tensors of an MTP-only head")));
}

TEST(Checkpoint, PatternsThatTheTensorsOverruleAreNotedOnce) {
    const TestFolder folder;
    auto tensors = nvfp4_module("mtp.layers.0.mlp.up_proj", 3, 32);
    append(tensors, nvfp4_module("mtp.layers.0.mlp.down_proj", 3, 32));
    auto opened = open_with(folder, tensors, R"({"quantization_config":{"quant_algo":"NVFP4","ignore":["mtp*"]}})");
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_THAT((*opened)->notes(),
                ElementsAre(HasSubstr("lists 'mtp*' as not quantised, but the tensors of 'mtp.layers.0.mlp.down_proj'")));
    EXPECT_EQ((*opened)->linear("mtp.layers.0.mlp.up_proj", 3, 32)->activations, ActivationScheme::nvfp4_static);
    opened =
        open_with(folder, tensors, R"({"quantization_config":{"quant_algo":"NVFP4","ignore":["mtp.layers.0.mlp.up_proj"]}})");
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::corrupt_data);
}

TEST(Checkpoint, SameNameTwiceAfterNormalising) {
    const TestFolder folder;
    const auto opened = open_with(folder, {make_tensor("model.norm.weight", Dtype::bf16, {8}),
                                           make_tensor("language_model.norm.weight", Dtype::bf16, {8})});
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().message, AllOf(HasSubstr("'model.norm.weight'"), HasSubstr("'language_model.norm.weight'")));
}

std::string open_error(const TestFolder& folder) {
    const auto opened = Checkpoint::open(folder.path());
    return opened ? "none" : opened.error().message;
}

TEST(Folder, MissingParts) {
    const TestFolder folder;
    EXPECT_THAT(Checkpoint::open(folder.path("nowhere")).error().message, HasSubstr("no such folder"));
    folder.write("file", "x");
    EXPECT_THAT(Checkpoint::open(folder.path("file")).error().message, HasSubstr("not a folder"));
    EXPECT_THAT(open_error(folder), HasSubstr("config.json: cannot open"));
    folder.write("config.json", "{}");
    EXPECT_THAT(open_error(folder), HasSubstr("no weights found"));
    ASSERT_TRUE(write_safetensors(folder.path("other.safetensors"), {make_tensor("norm.weight", Dtype::f32, {1})}));
    EXPECT_EQ(open_error(folder), "none");  // the only file there is
    ASSERT_TRUE(write_safetensors(folder.path("second.safetensors"), {make_tensor("b.weight", Dtype::f32, {1})}));
    EXPECT_THAT(open_error(folder), HasSubstr("2 safetensors files"));
    folder.write("model.safetensors", "");
    EXPECT_THAT(open_error(folder), HasSubstr("0 bytes long"));
}

TEST(Folder, BadConfigs) {
    const TestFolder folder;
    ASSERT_TRUE(write_safetensors(folder.path("model.safetensors"), {make_tensor("norm.weight", Dtype::f32, {1})}));
    const std::string deep = "{\"a\":" + std::string(100000, '[');
    for (const std::string& text :
         {std::string(), std::string("{"), std::string("[]"), std::string(R"({"text_config":3})"), deep,
          std::string(R"({"eos_token_id":"x"})"), std::string(R"({"eos_token_id":[18446744073709551615]})"),
          std::string(R"({"eos_token_id":-1})")}) {
        folder.write("config.json", text);
        EXPECT_THAT(open_error(folder), HasSubstr("config.json: ")) << text.substr(0, 80);
    }
    folder.write("config.json", R"({"text_config":{"hidden_size":4},"tie_word_embeddings":true,"eos_token_id":7})");
    for (const char* text : {"[]", "{", R"({"temperature":"hot"})", R"({"top_k":1e300})", R"({"top_k":-1})", ""}) {
        folder.write("generation_config.json", text);
        EXPECT_THAT(open_error(folder), HasSubstr("generation_config.json: ")) << text;
    }
    folder.write("generation_config.json", R"({"eos_token_id":9,"top_p":null})");
    const auto opened = Checkpoint::open(folder.path());
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_THAT((*opened)->generation_defaults().eos_ids, ElementsAre(9, 7));
    EXPECT_EQ((*opened)->text_config()["tie_word_embeddings"], true);
}

TEST(Folder, IndexAndShardsMustAgree) {
    const TestFolder folder;
    folder.write("config.json", "{}");
    ASSERT_TRUE(write_safetensors(folder.path("a.safetensors"), {make_tensor("x.weight", Dtype::f32, {1})}));
    ASSERT_TRUE(write_safetensors(folder.path("b.safetensors"), {make_tensor("y.weight", Dtype::f32, {1})}));
    const auto with_map = [&](std::string_view map) {
        folder.write("model.safetensors.index.json", "{\"weight_map\":" + std::string(map) + "}");
        return open_error(folder);
    };
    EXPECT_EQ(with_map(R"({"x.weight":"a.safetensors","y.weight":"b.safetensors"})"), "none");
    EXPECT_THAT(with_map(R"({"x.weight":"b.safetensors","y.weight":"b.safetensors"})"),
                HasSubstr("'x.weight' should be in b.safetensors but is in no shard"));
    EXPECT_THAT(with_map(R"({"x.weight":"b.safetensors","y.weight":"a.safetensors"})"),
                HasSubstr("'x.weight' should be in b.safetensors but is in a"));
    EXPECT_THAT(with_map(R"({"x.weight":"a.safetensors","z.weight":"b.safetensors","y.weight":"b.safetensors"})"),
                HasSubstr("'z.weight' should be in"));
    EXPECT_THAT(with_map(R"({"x.weight":"a.safetensors","y.weight":"c.safetensors"})"), HasSubstr("c.safetensors: cannot open"));
    ASSERT_TRUE(write_safetensors(folder.path("b.safetensors"),
                                  {make_tensor("y.weight", Dtype::f32, {1}), make_tensor("w.weight", Dtype::f32, {1})}));
    EXPECT_THAT(with_map(R"({"x.weight":"a.safetensors","y.weight":"b.safetensors"})"),
                HasSubstr("'w.weight' is in b.safetensors but not in the index"));
    ASSERT_TRUE(write_safetensors(folder.path("b.safetensors"),
                                  {make_tensor("y.weight", Dtype::f32, {1}), make_tensor("x.weight", Dtype::f32, {1})}));
    EXPECT_THAT(with_map(R"({"x.weight":"a.safetensors","y.weight":"b.safetensors"})"), HasSubstr("are the same tensor"));
    for (const char* name : {"/etc/passwd", "../a.safetensors", "x/../a.safetensors", "..", "", "a.bin", "/a.safetensors",
                             "a\\b.safetensors", "a\\u0000.safetensors"}) {
        EXPECT_THAT(with_map(std::string(R"({"x.weight":")") + name + "\"}"), HasSubstr(": ")) << name;
        EXPECT_NE(open_error(folder), "none") << name;
    }
    EXPECT_THAT(with_map(R"({"x.weight":"../a.safetensors"})"), HasSubstr("'../a.safetensors' is refused"));
    EXPECT_THAT(with_map(R"({"x.weight":3})"), HasSubstr("not a file name"));
    EXPECT_THAT(with_map("[]"), HasSubstr("'weight_map' object"));
    EXPECT_THAT(with_map("{}"), HasSubstr("weight_map is empty"));
}

TEST(Folder, DamagedFilesGiveOneLine) {
    const TestFolder folder;
    folder.write("config.json", "{}");
    auto tensors = nvfp4_module(kUpInFile, 3, 32);
    append(tensors, fp8_module("model.layers.0.mlp.down_proj", 8, 32, "weight_scale", {8, 1}));
    ASSERT_TRUE(write_safetensors(folder.path("model.safetensors"), tensors));
    const auto whole = folder.read("model.safetensors");
    const auto try_open = [&](std::string_view bytes) {
        folder.write("model.safetensors", bytes);
        auto opened = Checkpoint::open(folder.path());
        if (!opened) return opened.error().message;
        for (const auto& module : (*opened)->modules()) {
            if (auto view = (*opened)->linear(module.name, module.n, module.k); !view) return view.error().message;
        }
        return std::string();
    };
    ASSERT_EQ(try_open(whole), "");
    for (size_t n = 0; n < whole.size(); n += 41) EXPECT_NE(try_open(std::string_view(whole).substr(0, n)), "") << n;
    for (size_t bit = 0; bit < whole.size() * 8; bit += 53) {
        auto damaged = whole;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
        EXPECT_EQ(try_open(damaged).find('\n'), std::string::npos);
    }
}

}  // namespace
}  // namespace espalier::checkpoint
