// Checkpoint over GGUF files: metadata to config, values in Hugging Face's order, split files, and what is refused.
#include "checkpoint/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/gguf_builder.h"
#include "checkpoint/gguf_files.h"
#include "checkpoint/summary.h"
#include "checkpoint/test_folder.h"
#include "checkpoint/values.h"

namespace espalier::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ8 = 8;
constexpr uint32_t kIq2 = 16;

std::string float_bytes(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// 0, 1, 2, ...
std::string counting(size_t n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i);
    return float_bytes(values);
}

// Two key heads of 1, four value heads of 2, hidden size 32; one layer and its MTP block, of which few tensors are there.
GgufBuilder metadata() {
    GgufBuilder builder;
    builder.string("general.architecture", "qwen35");
    struct Number {
        const char* key;
        uint32_t value;
    };
    constexpr Number kNumbers[] = {
        {"block_count", 2},           {"nextn_predict_layers", 1}, {"context_length", 4096},       {"embedding_length", 32},
        {"feed_forward_length", 64},  {"attention.head_count", 2}, {"attention.head_count_kv", 1}, {"attention.key_length", 48},
        {"rope.dimension_count", 10}, {"ssm.conv_kernel", 4},      {"ssm.state_size", 1},          {"ssm.group_count", 2},
        {"ssm.time_step_rank", 4},    {"ssm.inner_size", 8}};
    for (const Number& number : kNumbers) builder.u32(std::string("qwen35.") + number.key, number.value);
    builder.f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6f).f32("qwen35.rope.freq_base", 1e7f);
    builder.u32("tokenizer.ggml.eos_token_id", 7).u32("tokenizer.ggml.eot_token_id", 9).f32("general.sampling.temp", 0.5f);
    return builder;
}

GgufBuilder model() {
    GgufBuilder builder = metadata();
    builder.tensor("token_embd.weight", {32, 3}, kF32, counting(96));
    builder.tensor("output_norm.weight", {32}, kF32, float_bytes(std::vector<float>(32, 1.5f)));
    builder.tensor("blk.0.ssm_a", {4}, kF32, float_bytes({-std::exp(0.1f), -std::exp(1.7f), -std::exp(-2.3f), -std::exp(2.77f)}));
    builder.tensor("blk.0.ssm_dt.bias", {4}, kF32, counting(4));
    builder.tensor("blk.0.ssm_conv1d.weight", {4, 12}, kF32, counting(48));
    builder.tensor("blk.0.ssm_out.weight", {8, 2}, kF32, counting(16));
    builder.tensor("blk.0.attn_gate.weight", {1, 8}, kF32, counting(8));
    return builder;
}

std::unique_ptr<Checkpoint> opened(const TestFolder& folder, const GgufBuilder& builder) {
    folder.write("m.gguf", builder.build());
    auto checkpoint = Checkpoint::open(folder.path("m.gguf"));
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    return checkpoint ? *std::move(checkpoint) : nullptr;
}

std::string error_of(const TestFolder& folder, const GgufBuilder& builder) {
    folder.write("m.gguf", builder.build());
    const auto checkpoint = Checkpoint::open(folder.path("m.gguf"));
    return checkpoint ? "none" : checkpoint.error().message;
}

std::vector<float> values_of(const WeightView& view) {
    return read_floats(view.layout == WeightLayout::f32 ? Dtype::f32 : Dtype::bf16, view.data);
}

TEST(GgufCheckpoint, MetadataAsConfig) {
    const TestFolder folder;
    const auto checkpoint = opened(folder, model());
    const Json& config = checkpoint->text_config();
    EXPECT_EQ(config["model_type"], "qwen3_5_text");
    EXPECT_EQ(config["vocab_size"], 3);
    EXPECT_EQ(config["num_hidden_layers"], 1);
    EXPECT_EQ(config["mtp_num_hidden_layers"], 1);
    EXPECT_EQ(config["linear_value_head_dim"], 2);
    EXPECT_EQ(config["rms_norm_eps"], 1e-6);
    EXPECT_EQ(static_cast<int>(config["rope_parameters"]["partial_rotary_factor"].get<double>() * 48), 10);
    EXPECT_THAT(checkpoint->generation_defaults().eos_ids, ElementsAre(7, 9));
    EXPECT_EQ(checkpoint->generation_defaults().temperature, 0.5);
    EXPECT_FALSE(checkpoint->declares_fp8_kv());
    EXPECT_FALSE(checkpoint->has_linear("lm_head"));
    EXPECT_FALSE(checkpoint->has_linear("layers.0.linear_attn.conv1d"));
}

TEST(GgufCheckpoint, ValuesAreHuggingFaces) {
    const TestFolder folder;
    const auto checkpoint = opened(folder, model());
    const int64_t hidden[] = {32};
    const int64_t heads[] = {4};
    const int64_t conv[] = {12, 4};
    EXPECT_EQ(checkpoint->floats("norm.weight", hidden)->front(), 0.5f);
    // File order 0 1 2 3 holds our heads 0 2 1 3; the exponentials come back to the bit.
    EXPECT_THAT(*checkpoint->floats("layers.0.linear_attn.dt_bias", heads), ElementsAre(0, 2, 1, 3));
    std::vector<float> a = *checkpoint->floats("layers.0.linear_attn.A_log", heads);
    for (float& value : a) value = std::exp(value);
    EXPECT_THAT(a, ElementsAre(std::exp(0.1f), std::exp(-2.3f), std::exp(1.7f), std::exp(2.77f)));
    const auto channels = *checkpoint->floats("layers.0.linear_attn.conv1d.weight", conv);
    std::vector<float> firsts;
    for (size_t i = 0; i < channels.size(); i += 4) firsts.push_back(channels[i] / 4);
    EXPECT_THAT(firsts, ElementsAre(0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10, 11));
    const auto gate = checkpoint->linear("layers.0.linear_attn.in_proj_z", 8, 1);
    EXPECT_THAT(values_of(*gate), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
    const auto out = checkpoint->linear("layers.0.linear_attn.out_proj", 2, 8);
    EXPECT_THAT(values_of(*out), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    EXPECT_TRUE(checkpoint->linear("embed_tokens", 3, 32));
    EXPECT_TRUE(checkpoint->check_all_used()) << checkpoint->check_all_used().error().message;
    checkpoint->release(*gate);
    checkpoint->release(*out);
}

TEST(GgufCheckpoint, QuantisedMatricesAreExpanded) {
    const TestFolder folder;
    GgufBuilder builder = metadata();
    std::string block = GgufBuilder::number<uint16_t>(0x3800);  // 0.5
    for (int i = 0; i < 32; ++i) block += static_cast<char>(i - 16);
    builder.tensor("token_embd.weight", {32, 2}, kQ8, block + block);
    const auto checkpoint = opened(folder, builder);
    const auto view = checkpoint->linear("embed_tokens", 2, 32);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->layout, WeightLayout::bf16);
    const auto values = values_of(*view);
    ASSERT_EQ(values.size(), 64u);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], 0.5f * (static_cast<float>(i % 32) - 16));
    EXPECT_THAT(checkpoint->notes(), ElementsAre(HasSubstr("1 tensors of Q8_0 are expanded to BF16 when loaded")));
    ASSERT_EQ(checkpoint->modules().size(), 1u);
    EXPECT_EQ(checkpoint->modules()[0].bytes, 128);
    EXPECT_TRUE(checkpoint->modules()[0].is_copied);
    EXPECT_TRUE(summarize(*checkpoint).groups[0].is_copied);
}

// One row of a block: scales 1 and 2 in turn, value j of each group is code j.
std::string nvfp4_row() {
    std::string row = "\x38\x40\x38\x40";
    for (int group = 0; group < 4; ++group) {
        for (int j = 0; j < 8; ++j) row += static_cast<char>(j | (j + 8) << 4);
    }
    return row;
}

TEST(GgufCheckpoint, Nvfp4KeepsItsCodesAndScales) {
    constexpr uint32_t kNvfp4 = 40;
    const TestFolder folder;
    GgufBuilder builder = metadata();
    builder.tensor("token_embd.weight", {64, 1}, kNvfp4, nvfp4_row()).tensor("token_embd.scale", {1}, kF32, float_bytes({0.25f}));
    builder.tensor("token_embd.input_scale", {1}, kF32, float_bytes({0.5f}));
    auto checkpoint = opened(folder, builder);
    const auto view = checkpoint->linear("embed_tokens", 1, 64);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->layout, WeightLayout::nvfp4);
    EXPECT_EQ(view->activations, ActivationScheme::nvfp4_static);
    ASSERT_EQ(view->data.size(), 32u);
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(std::to_integer<size_t>(view->data[i]), i % 8 * 0x22 + 0x10) << i;
    EXPECT_THAT(view->block_scales_e4m3, ElementsAre(0x38, 0x40, 0x38, 0x40));
    ASSERT_EQ(view->row_scales.size(), 1u);
    EXPECT_EQ(view->row_scales[0].weight_scale, 0.25f);
    EXPECT_EQ(view->row_scales[0].input_scale, 0.5f);
    EXPECT_TRUE(checkpoint->check_all_used());
    EXPECT_EQ(summarize(*checkpoint).problems.size(), 0u);
    // Damaged scales, of either level.
    builder.tensor("output.weight", {64, 1}, kNvfp4, "\x7f" + nvfp4_row().substr(1))
        .tensor("output.scale", {1}, kF32, float_bytes({-1}));
    checkpoint = opened(folder, builder);
    EXPECT_THAT(checkpoint->linear("lm_head", 1, 64).error().message, HasSubstr("'output.weight' has the block scale 0x7f"));
    GgufBuilder negative = metadata();
    negative.tensor("token_embd.weight", {64, 1}, kNvfp4, nvfp4_row()).tensor("token_embd.scale", {1}, kF32, float_bytes({-1}));
    EXPECT_THAT(opened(folder, negative)->linear("embed_tokens", 1, 64).error().message,
                HasSubstr("'token_embd.scale' is F32 [1] (-1), expected one F32 above 0"));
}

TEST(GgufCheckpoint, WhatIsRefused) {
    const TestFolder folder;
    const auto with = [](const char* name, std::vector<uint64_t> extents, uint32_t type, size_t bytes) {
        GgufBuilder builder = model();
        builder.tensor(name, std::move(extents), type, std::string(bytes, '\0'));
        return builder;
    };
    EXPECT_THAT(error_of(folder, with("blk.0.ffn_up.weight", {256, 1}, kIq2, 66)),
                HasSubstr("'blk.0.ffn_up.weight' is stored as IQ2_XXS, which this program cannot read; supported are F32,"));
    const auto extra = opened(folder, with("blk.0.attn_sinks", {1}, kF32, 4));
    EXPECT_THAT(extra->check_all_used().error().message, HasSubstr("'blk.0.attn_sinks' F32 [1]"));
    EXPECT_THAT(extra->linear("lm_head", 3, 32).error().message, HasSubstr("'lm_head.weight' is missing"));
    EXPECT_THAT(extra->linear("embed_tokens", 4, 32).error().message,
                HasSubstr("'token_embd.weight' has shape [3, 32], the metadata asks for 4 x 32"));
    const int64_t wrong[] = {31};
    EXPECT_THAT(extra->floats("norm.weight", wrong).error().message, HasSubstr("has shape [32], the metadata asks for [31]"));
    EXPECT_THAT(extra->floats("nothing", wrong).error().message, HasSubstr("'nothing' is missing"));
    GgufBuilder positive = metadata();
    positive.tensor("token_embd.weight", {32, 3}, kF32, counting(96)).tensor("blk.0.ssm_a", {4}, kF32, counting(4));
    const int64_t heads[] = {4};
    EXPECT_THAT(opened(folder, positive)->floats("layers.0.linear_attn.A_log", heads).error().message,
                HasSubstr("'blk.0.ssm_a' holds 0, expected numbers below 0"));
    EXPECT_THAT(error_of(folder, metadata()), HasSubstr("holds no tensors"));
}

TEST(GgufCheckpoint, WrongMetadataIsNamed) {
    const TestFolder folder;
    const auto plain = [](GgufBuilder builder) {
        builder.tensor("token_embd.weight", {32, 3}, kF32, counting(96));
        return builder;
    };
    EXPECT_THAT(error_of(folder, plain(GgufBuilder())), HasSubstr("general.architecture is missing, supported: 'qwen35'"));
    GgufBuilder llama;
    llama.string("general.architecture", "llama");
    EXPECT_THAT(error_of(folder, plain(llama)), HasSubstr("general.architecture is 'llama'"));
    GgufBuilder bare;
    bare.string("general.architecture", "qwen35");
    EXPECT_THAT(error_of(folder, plain(bare)), HasSubstr("metadata 'qwen35.block_count' is missing"));
    bare.string("qwen35.block_count", "many");
    EXPECT_THAT(error_of(folder, plain(bare)), HasSubstr("qwen35.block_count is 'many', expected a whole number from 1 to"));
    EXPECT_THAT(error_of(folder, plain(metadata().string("qwen35.rope.scaling.type", "yarn"))),
                HasSubstr("qwen35.rope.scaling.type is 'yarn', only 'none' is supported"));
    EXPECT_THAT(error_of(folder, plain(metadata().u32("qwen35.attention.value_length", 64))),
                HasSubstr("qwen35.attention.value_length is 64, expected 48"));
    EXPECT_THAT(error_of(folder, plain(metadata().u32("qwen35.attention.recurrent_layers", 1))),
                HasSubstr("qwen35.attention.recurrent_layers is 1, expected 1 truth values"));
}

// A model in two parts, as its writer names them.
void write_parts(const TestFolder& folder, uint32_t first, uint32_t second, uint32_t n_tensors) {
    const auto part = [&](GgufBuilder builder, uint32_t number, const char* name) {
        builder.u32("split.count", 2).u32("split.no", number).u32("split.tensors.count", n_tensors);
        builder.tensor(name, {32, 3}, kF32, counting(96));
        folder.write("m-0000" + std::to_string(number + 1) + "-of-00002.gguf", builder.build());
    };
    part(metadata(), first, "token_embd.weight");
    part(GgufBuilder(), second, "output.weight");
}

TEST(GgufFiles, PartsOfOneModel) {
    const TestFolder folder;
    const auto path = folder.path("m-00002-of-00002.gguf");
    write_parts(folder, 0, 1, 2);
    const auto checkpoint = Checkpoint::open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE((*checkpoint)->has_linear("lm_head"));
    EXPECT_TRUE((*checkpoint)->has_linear("embed_tokens"));
    EXPECT_THAT(gguf_paths(path), ElementsAre(folder.path("m-00001-of-00002.gguf"), path));
    write_parts(folder, 0, 1, 3);
    EXPECT_THAT(Checkpoint::open(path).error().message, HasSubstr("split.tensors.count is 3, the 2 parts hold 2"));
    std::filesystem::remove(folder.path("m-00001-of-00002.gguf"));
    EXPECT_THAT(Checkpoint::open(path).error().message, HasSubstr("part 1 of 2 is missing"));
    std::filesystem::create_symlink(path, folder.path("m-00001-of-00002.gguf"));
    EXPECT_THAT(Checkpoint::open(path).error().message, HasSubstr("says that it is part 2 of 2"));
    std::filesystem::copy_file(path, folder.path("alone.gguf"));
    EXPECT_THAT(Checkpoint::open(folder.path("alone.gguf")).error().message, HasSubstr("expected part 1 of 1"));
}

TEST(GgufFiles, TheOnlyModelOfAFolder) {
    const TestFolder folder;
    EXPECT_EQ(*gguf_in_folder(folder.path()), folder.path());
    write_parts(folder, 0, 1, 2);
    folder.write("mmproj-m.gguf", "GGUF");
    EXPECT_EQ(*gguf_in_folder(folder.path()), folder.path("m-00001-of-00002.gguf"));
    EXPECT_EQ(*gguf_in_folder(folder.path("mmproj-m.gguf")), folder.path("mmproj-m.gguf"));
    folder.write("other.gguf", "GGUF");
    EXPECT_THAT(gguf_in_folder(folder.path()).error().message, HasSubstr("2 GGUF models ("));
    folder.write("config.json", "{}");
    EXPECT_EQ(*gguf_in_folder(folder.path()), folder.path());
}

TEST(GgufFiles, NamesOfParts) {
    for (const char* name : {"m.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-00001-of-99999.gguf",
                             "-00001-of-00002.gguf", "m-0001-of-0002.gguf", "m-00001-of-00002.bin", ""}) {
        EXPECT_THAT(gguf_paths(name), ElementsAre(name));
    }
    EXPECT_THAT(gguf_paths("a/m-00001-of-00001.gguf"), ElementsAre("a/m-00001-of-00001.gguf"));
    EXPECT_EQ(gguf_paths("m-00007-of-00012.gguf").size(), 12u);
}

}  // namespace
}  // namespace espalier::checkpoint
