#include "quant/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "checkpoint/reference_checkpoint.h"
#include "checkpoint/test_folder.h"

namespace espalier::quant {
namespace {

Result<Plan> plan_of(const std::string& folder, const Choices& choices) {
    TRY_ASSIGN(const auto source, checkpoint::Checkpoint::open(folder));
    TRY_ASSIGN(const auto files, checkpoint::open_tensor_files(folder));
    return make_plan(*source, files, choices);
}

std::set<std::string> names(const Plan& plan) {
    std::set<std::string> names;
    for (const PlannedModule& module : plan.modules) names.insert(module.name);
    return names;
}

TEST(Recipe, NamesAreReadBack) {
    for (const Recipe recipe : {Recipe::nvfp4, Recipe::nvfp4_w4a16, Recipe::fp8, Recipe::fp8_block}) {
        EXPECT_EQ(*parse_recipe(to_string(recipe)), recipe);
    }
    const auto bad = parse_recipe("nvfp5");
    ASSERT_FALSE(bad.has_value());
    EXPECT_NE(bad.error().message.find("nvfp4-w4a16"), std::string::npos);
}

TEST(Plan, DefaultsAreModelOpts) {
    const auto plan = plan_of(checkpoint::reference_checkpoint("tiny_a"), {});
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    // 8 layers: 2 of attention with 4 + 3 projections, 6 recurrent ones with 3 + 3.
    EXPECT_EQ(plan->modules.size(), 2u * 7u + 6u * 6u);
    for (const auto& module : plan->modules) {
        EXPECT_TRUE(module.name.starts_with("layers.")) << module.name;
        EXPECT_TRUE(module.file_name.starts_with("model.language_model.layers.")) << module.file_name;
        EXPECT_FALSE(module.name.ends_with("in_proj_a") || module.name.ends_with("in_proj_b")) << module.name;
    }
    ASSERT_EQ(plan->kv.size(), 2u);
    EXPECT_EQ(plan->kv[0].layer, "layers.3");
    EXPECT_EQ(plan->kv[0].file_name, "model.language_model.layers.3.self_attn");
    const std::set<std::string> excluded(plan->excluded.begin(), plan->excluded.end());
    for (const char* name : {"lm_head", "model.language_model.embed_tokens", "model.language_model.layers.0.linear_attn.conv1d",
                             "model.language_model.layers.0.linear_attn.in_proj_a", "model.visual*", "mtp*"}) {
        EXPECT_TRUE(excluded.contains(name)) << name;
    }
    EXPECT_EQ(excluded.size(), 3u * 6u + 4u);
    EXPECT_FALSE(plan->unties_head);
}

TEST(Plan, FusedProjectionsShareAKey) {
    const auto plan = plan_of(checkpoint::reference_checkpoint("tiny_b"), {});
    ASSERT_TRUE(plan.has_value());
    const auto key = [&](std::string_view name) {
        const auto found =
            std::find_if(plan->modules.begin(), plan->modules.end(), [&](const auto& m) { return m.name == name; });
        return found == plan->modules.end() ? std::string() : found->key;
    };
    EXPECT_EQ(key("layers.3.self_attn.q_proj"), key("layers.3.self_attn.v_proj"));
    EXPECT_EQ(key("layers.3.self_attn.q_proj"), key("layers.3.self_attn.k_proj"));
    EXPECT_EQ(key("layers.0.linear_attn.in_proj_qkv"), key("layers.0.linear_attn.in_proj_z"));
    EXPECT_EQ(key("layers.0.mlp.gate_proj"), key("layers.0.mlp.up_proj"));
    std::set<std::string> of_a_layer;
    for (const char* name : {"q_proj", "o_proj"}) of_a_layer.insert(key(std::string("layers.3.self_attn.") + name));
    for (const char* name : {"up_proj", "down_proj"}) of_a_layer.insert(key(std::string("layers.3.mlp.") + name));
    of_a_layer.insert(key("layers.2.mlp.up_proj"));
    EXPECT_EQ(of_a_layer.size(), 5u);
}

TEST(Plan, HeadAndMtpOnRequest) {
    Choices choices;
    choices.has_head = true;
    choices.has_mtp = true;
    const auto plan = plan_of(checkpoint::reference_checkpoint("tiny_b"), choices);
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(names(*plan).contains("lm_head"));
    EXPECT_TRUE(names(*plan).contains("mtp.layers.0.self_attn.q_proj"));
    EXPECT_FALSE(names(*plan).contains("mtp.fc"));
    EXPECT_EQ(plan->kv.size(), 1u);  // of the trunk
    const auto tied = plan_of(checkpoint::reference_checkpoint("tiny_a"), choices);
    ASSERT_TRUE(tied.has_value());
    EXPECT_TRUE(tied->unties_head);
    const auto head = std::find_if(tied->modules.begin(), tied->modules.end(), [](const auto& m) { return m.name == "lm_head"; });
    ASSERT_NE(head, tied->modules.end());
    EXPECT_EQ(head->source, "embed_tokens");
    EXPECT_EQ(head->n, 1024);
}

TEST(Plan, RefusesWhatItCannotQuantise) {
    checkpoint::TestFolder folder;
    folder.write("config.json", "{}");
    using checkpoint::make_tensor;
    const auto attempt = [&](std::vector<checkpoint::TensorToWrite> tensors, const Choices& choices) {
        EXPECT_TRUE(checkpoint::write_safetensors(folder.path("model.safetensors"), tensors).has_value());
        const auto plan = plan_of(folder.path(), choices);
        return plan ? std::string() : plan.error().message;
    };
    const auto odd = make_tensor("model.layers.0.mlp.up_proj.weight", Dtype::bf16, {8, 24});
    EXPECT_NE(attempt({odd}, {}).find("K = 24"), std::string::npos);
    EXPECT_EQ(attempt({odd}, {Recipe::fp8, false, false, false}), "");
    EXPECT_NE(attempt({odd}, {Recipe::fp8, false, true, false}).find("no MTP"), std::string::npos);
    EXPECT_NE(attempt({odd}, {Recipe::fp8, true, false, false}).find("neither LM head"), std::string::npos);
    EXPECT_NE(attempt({make_tensor("model.norm.weight", Dtype::bf16, {8})}, {}).find("no projections"), std::string::npos);
    auto quantised = checkpoint::nvfp4_module("model.layers.0.mlp.up_proj", 8, 32);
    EXPECT_NE(attempt(std::move(quantised), {}).find("already"), std::string::npos);
}

}  // namespace
}  // namespace espalier::quant
