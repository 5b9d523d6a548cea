#include "probe/make_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/test_folder.h"
#include "checkpoint/values.h"
#include "probe/random_weights.h"

namespace espalier::probe {
namespace {

using checkpoint::Checkpoint;
using checkpoint::TestFolder;
using testing::HasSubstr;

MakeModelOptions tiny(const TestFolder& folder, const char* name, const char* format) {
    MakeModelOptions options;
    options.shape = "tiny";
    options.format = format;
    options.out_dir = folder.path(name);
    return options;
}

double deviation(std::span<const float> values) {
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * value;
    return std::sqrt(square / static_cast<double>(values.size()));
}

TEST(MakeModel, Bf16HasTheScalesOfTheReferenceModels) {
    const TestFolder folder;
    ASSERT_TRUE(make_model(tiny(folder, "m", "bf16")));
    auto opened = Checkpoint::open(folder.path("m"));
    ASSERT_TRUE(opened) << opened.error().message;
    auto& checkpoint = **opened;
    EXPECT_THAT(checkpoint.generation_defaults().eos_ids, testing::ElementsAre(1022, 1020));
    EXPECT_FALSE(checkpoint.has_linear("lm_head"));
    EXPECT_TRUE(checkpoint.has_linear("mtp.fc"));
    const auto up = checkpoint.linear("layers.0.mlp.up_proj", 256, 128);
    ASSERT_TRUE(up) << up.error().message;
    EXPECT_EQ(up->layout, WeightLayout::bf16);
    EXPECT_NEAR(deviation(checkpoint::read_floats(Dtype::bf16, up->data)) * std::sqrt(128.0), 1, 0.03);
    const int64_t n_heads[] = {4};
    const auto decays = checkpoint.floats("layers.0.linear_attn.A_log", n_heads);
    ASSERT_TRUE(decays) << decays.error().message;
    for (const float value : *decays) {
        EXPECT_GE(value, 0);
        EXPECT_LE(value, std::log(16.0f) + 0.01f);
    }
    const auto biases = checkpoint.floats("layers.0.linear_attn.dt_bias", n_heads);
    ASSERT_TRUE(biases) << biases.error().message;
    for (const float value : *biases) {
        const double step = std::log1p(std::exp(value));
        EXPECT_GT(step, 0.9e-3);
        EXPECT_LT(step, 1.1e-1);
    }
}

TEST(MakeModel, Nvfp4IsModelOptsLayoutAndAgreesWithItsMetadata) {
    const TestFolder folder;
    ASSERT_TRUE(make_model(tiny(folder, "m", "nvfp4")));
    auto opened = Checkpoint::open(folder.path("m"));
    ASSERT_TRUE(opened) << opened.error().message;
    auto& checkpoint = **opened;
    EXPECT_TRUE(checkpoint.declares_fp8_kv());
    EXPECT_EQ(checkpoint.kv_scales("layers.3.self_attn")->k, 8.0f / 448);
    int n_quantised = 0;
    for (const auto& module : checkpoint.modules()) {
        const auto view = checkpoint.linear(module.name, module.n, module.k);
        ASSERT_TRUE(view) << view.error().message;
        n_quantised += view->layout == WeightLayout::nvfp4;
        if (view->layout != WeightLayout::nvfp4) continue;
        EXPECT_EQ(view->activations, ActivationScheme::nvfp4_static);
    }
    EXPECT_EQ(n_quantised, 3 * 3 + 4 + 4 * 3 + 1 + 7);  // recurrent, attention, MLP, head, MTP
    const auto up = checkpoint.linear("layers.0.mlp.up_proj", 256, 128);
    constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    std::vector<float> weights;
    for (size_t i = 0; i < up->data.size() * 2; ++i) {
        const int code = (static_cast<int>(up->data[i / 2]) >> (i % 2 * 4)) & 15;
        const float scale = checkpoint::float_from_e4m3(up->block_scales_e4m3[i / 16]) * up->row_scales[0].weight_scale;
        weights.push_back((code & 8 ? -1 : 1) * kValues[code & 7] * scale);
    }
    EXPECT_NEAR(deviation(weights) * std::sqrt(128.0), 1, 0.03);
}

TEST(MakeModel, TheSeedDecidesEveryByte) {
    const TestFolder folder;
    auto options = tiny(folder, "a", "nvfp4");
    ASSERT_TRUE(make_model(options));
    options.out_dir = folder.path("b");
    ASSERT_TRUE(make_model(options));
    options.out_dir = folder.path("c");
    options.seed = 2;
    ASSERT_TRUE(make_model(options));
    EXPECT_TRUE(folder.read("a/model.safetensors") == folder.read("b/model.safetensors"));
    EXPECT_FALSE(folder.read("a/model.safetensors") == folder.read("c/model.safetensors"));
}

TEST(MakeModel, ThreadsDoNotChangeTheBytes) {
    const auto bytes_with = [](int n_threads) {
        RandomWeights random(7, n_threads);
        std::string bytes;
        const auto tensor = random.normal("x", {1001, 1003}, 0, 1);
        EXPECT_TRUE(tensor.produce([&](std::span<const std::byte> piece) -> Status {
            bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
            return {};
        }));
        return bytes;
    };
    const auto one = bytes_with(1);
    EXPECT_EQ(one.size(), 1001u * 1003 * 2);
    EXPECT_TRUE(one == bytes_with(3));
}

TEST(MakeModel, TheTokenizerGivesVocabularyAndStopIds) {
    const TestFolder folder;
    auto options = tiny(folder, "m", "bf16");
    options.tokenizer_path = std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/text/tokenizer/tiny/tokenizer.json";
    folder.write("template.jinja", "{{ messages }}");
    options.chat_template_path = folder.path("template.jinja");
    ASSERT_TRUE(make_model(options));
    auto opened = Checkpoint::open(folder.path("m"));
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->text_config()["vocab_size"], 2048);
    EXPECT_EQ((*opened)->generation_defaults().eos_ids.size(), 2u);
    EXPECT_EQ(folder.read("m/chat_template.jinja"), "{{ messages }}");
    EXPECT_TRUE(std::filesystem::exists(folder.path("m/tokenizer.json")));
}

TEST(MakeModel, BadOptions) {
    const TestFolder folder;
    auto options = tiny(folder, "m", "bf16");
    options.shape = "70b";
    EXPECT_THAT(make_model(options).error().message, HasSubstr("shape '70b' is unknown"));
    options = tiny(folder, "m", "int4");
    EXPECT_THAT(make_model(options).error().message, HasSubstr("format 'int4' is unknown"));
    options = tiny(folder, "m", "bf16");
    folder.write("t.json", "{}");
    options.tokenizer_path = folder.path("t.json");
    EXPECT_THAT(make_model(options).error().message, HasSubstr("expected a tokenizer.json"));
    folder.write("config.json", "{}");
    options = tiny(folder, "", "bf16");
    EXPECT_THAT(make_model(options).error().message, HasSubstr("already holds a model"));
}

}  // namespace
}  // namespace espalier::probe
