#include "checkpoint/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/reference_checkpoint.h"
#include "checkpoint/test_folder.h"

namespace espalier::checkpoint {
namespace {

using testing::HasSubstr;

TEST(Summary, OfAReferenceCheckpoint) {
    auto opened = Checkpoint::open(reference_checkpoint("tiny_a"));
    ASSERT_TRUE(opened) << opened.error().message;
    const auto summary = summarize(**opened);
    EXPECT_EQ(summary.architecture, "Qwen3_5ForConditionalGeneration");
    EXPECT_TRUE(summary.has_mtp);
    EXPECT_FALSE(summary.has_lm_head);
    EXPECT_TRUE(summary.problems.empty());
    EXPECT_EQ(summary.notes.size(), 1u);
    EXPECT_GT(summary.bytes_visual, 0);
    // All but the visual tensors are BF16.
    EXPECT_EQ(summary.n_parameters * 2, summary.bytes - summary.bytes_visual);
    const auto text = summary_text(summary);
    EXPECT_THAT(text, HasSubstr("layers.*.mlp.down_proj"));
    EXPECT_THAT(text, HasSubstr("tied to the embedding"));
    for (const auto& group : summary.groups) {
        if (group.name == "layers.*.mlp.down_proj") {
            EXPECT_EQ(group.n_modules, 8);
        } else if (group.name == "layers.*.self_attn.q_proj") {
            EXPECT_EQ(group.n_modules, 2);
        }
    }
}

TEST(Summary, CountsBlocksAndNamesProblems) {
    const TestFolder folder;
    folder.write("config.json", R"({"architectures":["X"],"model_type":"y"})");
    auto tensors = nvfp4_module("model.layers.0.mlp.up_proj", 3, 32);
    append(tensors, nvfp4_module("model.layers.1.mlp.up_proj", 3, 32));
    append(tensors, nvfp4_module("model.layers.2.mlp.up_proj", 3, 32));
    append(tensors, nvfp4_module("model.layers.0.self_attn.k_proj", 3, 32));
    replace_tensor(tensors, make_tensor("model.layers.1.mlp.up_proj.weight_scale", Dtype::f8_e4m3, {3, 2}, 0x7e));
    replace_tensor(tensors, make_floats("model.layers.1.mlp.up_proj.input_scale", {}, {1e6f}));
    replace_tensor(tensors,
                   make_floats("model.layers.2.mlp.up_proj.weight_scale_2", {}, {std::numeric_limits<float>::quiet_NaN()}));
    tensors.push_back(make_floats("model.layers.0.self_attn.k_scale", {1}, {0.5f}));
    ASSERT_TRUE(write_safetensors(folder.path("model.safetensors"), tensors));
    auto opened = Checkpoint::open(folder.path());
    ASSERT_TRUE(opened) << opened.error().message;
    const auto summary = summarize(**opened);
    ASSERT_EQ(summary.groups.size(), 2u);
    const auto& up = summary.groups[0];
    EXPECT_EQ(up.n_modules, 3);
    EXPECT_EQ(up.n_blocks, 12);  // the third module cannot be loaded
    EXPECT_EQ(up.n_blocks_saturated, 6);
    EXPECT_EQ(up.n_blocks_zero, 0);
    EXPECT_EQ(up.input_scale_max, 1e6f);
    EXPECT_EQ(summary.k_scale_max, 0.5f);
    EXPECT_EQ(summary.n_parameters, 4 * 3 * 32);
    EXPECT_THAT(summary.problems, testing::ElementsAre(HasSubstr("layers.1.mlp.up_proj: an input scale of 1000000"),
                                                       HasSubstr("weight_scale_2' is nan")));
    const auto json = summary_json(summary);
    EXPECT_EQ(json["modules"][0]["layout"], "nvfp4");
    EXPECT_EQ(json["modules"][0]["weight_scale"]["max"], 0.5);
    EXPECT_EQ(json["problems"].size(), 2u);
}

}  // namespace
}  // namespace espalier::checkpoint
