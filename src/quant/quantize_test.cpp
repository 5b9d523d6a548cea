#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "checkpoint/reference_checkpoint.h"
#include "checkpoint/test_folder.h"
#include "quant/layer_stream.h"
#include "quant/metadata.h"

namespace espalier::quant {
namespace {

namespace fs = std::filesystem;

TokenSet random_tokens(size_t n_sequences, size_t length, int32_t vocab, size_t n_calibration) {
    std::mt19937 random(5);
    TokenSet set;
    for (size_t s = 0; s < n_sequences; ++s) {
        auto& ids = set.sequences.emplace_back();
        for (size_t i = 0; i < length + s; ++i) ids.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)));
    }
    set.n_calibration = n_calibration;
    set.n_records = static_cast<int64_t>(n_sequences);
    return set;
}

QuantizeOptions options_for(const std::string& model, const std::string& out, Recipe recipe) {
    QuantizeOptions options;
    options.source = checkpoint::reference_checkpoint(model);
    options.destination = out;
    options.choices.recipe = recipe;
    options.choices.has_head = true;
    options.choices.has_mtp = true;
    options.isa = kernels::available_isas().back();
    options.version = "test";
    return options;
}

std::map<std::string, std::string> files_in(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (!entry.is_regular_file()) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        files[fs::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(file),
                                                              std::istreambuf_iterator<char>()};
    }
    return files;
}

TEST(LayerStream, GivesTheRowsOfTheWholeModel) {
    const checkpoint::TestFolder folder;
    const std::string model_path = checkpoint::reference_checkpoint("tiny_a");
    const auto isa = kernels::available_isas().back();
    ThreadPool pool(2);
    // The second sequence takes two passes of a layer.
    const TokenSet tokens = random_tokens(2, 600, 1024, 2);
    model::LoadOptions load;
    load.isa = isa;
    const auto model = std::move(*model::Model::load(std::move(*checkpoint::Checkpoint::open(model_path)), load, pool));
    auto memory = std::move(*cache::Memory::create(model->state_shape(), {32, 4}));
    model::PassLimits limits;
    limits.rows_max = 640;
    limits.context_tokens = 640;
    const auto forward = std::move(*model::Forward::create(*model, memory, pool, limits));
    const auto hidden = static_cast<size_t>(model->config().hidden);

    LayerStream stream({model_path, kernels::Acts::a32, isa}, tokens, pool);
    auto in = std::move(*RowFile::open(folder.path("a"), model->config().hidden));
    auto out = std::move(*RowFile::open(folder.path("b"), model->config().hidden));
    ASSERT_TRUE(stream.embed(in).has_value());
    for (int32_t layer = 0; layer < model->config().n_layers; ++layer) {
        ASSERT_TRUE(stream.run_layer(layer, in, out, nullptr).has_value());
        std::swap(in, out);
    }
    ASSERT_TRUE(stream.run_final_norm(in, out, nullptr).has_value());
    for (size_t s = 0; s < 2; ++s) {
        auto sequence = std::move(*cache::Sequence::create(memory, 640));
        const auto n = static_cast<int32_t>(tokens.sequences[s].size());
        const model::Segment segment{&sequence, tokens.sequences[s], {}, n};
        ASSERT_TRUE(forward->run({&segment, 1}).has_value());
        std::vector<float> rows(static_cast<size_t>(n) * hidden);
        ASSERT_TRUE(out.read(tokens.row_begin(s), rows).has_value());
        EXPECT_EQ(rows, std::vector<float>(forward->hidden(0, 0), forward->hidden(0, 0) + rows.size())) << s;
    }
}

class EveryRecipe : public testing::TestWithParam<Recipe> {};

TEST_P(EveryRecipe, GivesAModelThatLoadsWithTheRightFormats) {
    const checkpoint::TestFolder folder;
    ThreadPool pool(2);
    for (const char* name : {"tiny_a", "tiny_b"}) {
        QuantizeOptions options = options_for(name, folder.path(name), GetParam());
        const TokenSet tokens = random_tokens(4, 40, 1024, 3);
        const auto report = quantize(options, tokens, pool);
        ASSERT_TRUE(report.has_value()) << report.error().message;
        EXPECT_LT(report->bytes_quantised, report->bytes_source);
        for (const ModuleError& error : report->modules) {
            EXPECT_GT(error.relative_error, 0.01) << error.name;
            EXPECT_LT(error.relative_error, is_nvfp4(GetParam()) ? 0.13 : 0.04) << error.name;
        }
        ASSERT_TRUE(report->model.has_value());
        EXPECT_EQ(report->model->n_tokens, 42);
        EXPECT_GT(report->model->kl_mean, 0);
        auto checkpoint = std::move(*checkpoint::Checkpoint::open(folder.path(name)));
        EXPECT_TRUE(checkpoint->declares_fp8_kv());
        EXPECT_TRUE(checkpoint->notes().empty() || std::string(name) == "tiny_a");
        EXPECT_GT(checkpoint->kv_scales("layers.3.self_attn")->k, 0.001f);
        const auto view = checkpoint->linear("mtp.layers.0.mlp.gate_proj", std::string(name) == "tiny_a" ? 512 : 128, 256);
        ASSERT_TRUE(view.has_value());
        constexpr ActivationScheme kSchemes[] = {ActivationScheme::nvfp4_static, ActivationScheme::none,
                                                 ActivationScheme::fp8_static, ActivationScheme::fp8_dynamic_block};
        EXPECT_EQ(view->activations, kSchemes[static_cast<size_t>(GetParam())]);
        model::LoadOptions load;
        load.acts = kernels::Acts::ckpt;
        load.isa = options.isa;
        const auto model = model::Model::load(std::move(checkpoint), load, pool);
        ASSERT_TRUE(model.has_value()) << model.error().message;
        EXPECT_NE((*model)->mtp(), nullptr);
        // Fused projections stay one product: their activations are converted once.
        EXPECT_EQ((*model)->layers()[3].attention->qkv.matrices().size(), 1u);
        EXPECT_EQ((*model)->layers()[3].mlp.gate_up.matrices().size(), 1u);
    }
}

std::string name_of(const testing::TestParamInfo<Recipe>& recipe) {
    std::string name(to_string(recipe.param));
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(All, EveryRecipe, testing::Values(Recipe::nvfp4, Recipe::nvfp4_w4a16, Recipe::fp8, Recipe::fp8_block),
                         name_of);

TEST(Quantize, ThreadsDoNotMatter) {
    const checkpoint::TestFolder folder;
    const TokenSet tokens = random_tokens(2, 20, 1024, 2);
    for (const int n : {1, 3}) {
        ThreadPool pool(n);
        const std::string out = folder.path(std::to_string(n));
        ASSERT_TRUE(quantize(options_for("tiny_b", out, Recipe::nvfp4), tokens, pool).has_value());
    }
    EXPECT_EQ(files_in(folder.path("1")), files_in(folder.path("3")));
}

// Stops the run at each place where it can be stopped, goes on, and compares bytes with a run that was not stopped.
TEST(Quantize, GoesOnWhereverItStopped) {
    const checkpoint::TestFolder folder;
    ThreadPool pool(2);
    const TokenSet tokens = random_tokens(3, 20, 1024, 2);
    QuantizeOptions options = options_for("tiny_b", folder.path("whole"), Recipe::nvfp4);
    options.shard_bytes_max = 1 << 20;
    int n_steps = 0;
    options.progress = [&](std::string_view, double) {
        ++n_steps;
        return Status();
    };
    const auto whole = quantize(options, tokens, pool);
    ASSERT_TRUE(whole.has_value()) << whole.error().message;
    const auto expected = files_in(folder.path("whole"));
    ASSERT_TRUE(expected.contains("model.safetensors.index.json"));
    ASSERT_GT(n_steps, 100);
#ifdef ESPALIER_SANITIZED
    constexpr int kStops = 4;  // each is two runs, twenty times slower
#else
    constexpr int kStops = 12;
#endif
    for (int stop = 1; stop < n_steps; stop += 1 + n_steps / kStops) {
        options.destination = folder.path("stop-" + std::to_string(stop));
        options.resume = true;
        int step = 0;
        options.progress = [&](std::string_view, double) { return ++step == stop ? Status(cancelled("stopped")) : Status(); };
        const auto stopped = quantize(options, tokens, pool);
        ASSERT_FALSE(stopped.has_value());
        EXPECT_EQ(stopped.error().message, "stopped");
        // Other options are another run.
        QuantizeOptions other = options;
        other.choices.has_head = false;
        EXPECT_FALSE(quantize(other, tokens, pool).has_value());
        step = stop;
        const auto resumed = quantize(options, tokens, pool);
        ASSERT_TRUE(resumed.has_value()) << resumed.error().message;
        EXPECT_LT(step - stop, n_steps + 1);
        EXPECT_EQ(files_in(options.destination), expected) << stop;
        EXPECT_EQ(resumed->model->kl_mean, whole->model->kl_mean);
    }
}

TEST(Quantize, NeedsNoTextsForWeightsOnly) {
    const checkpoint::TestFolder folder;
    ThreadPool pool(1);
    QuantizeOptions options = options_for("tiny_b", folder.path("out"), Recipe::nvfp4_w4a16);
    const auto refused = quantize(options, {}, pool);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("--kv none"), std::string::npos);
    EXPECT_FALSE(fs::exists(folder.path("out")));
    options.choices.has_fp8_kv = false;
    const auto report = quantize(options, {}, pool);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_FALSE(report->model.has_value());
    EXPECT_NE(report_text(*report).find("not compared"), std::string::npos);
    EXPECT_TRUE(report_json(*report)["model"].is_null());
    EXPECT_FALSE((*checkpoint::Checkpoint::open(folder.path("out")))->declares_fp8_kv());
}

TEST(Quantize, RefusesWeightsThatAreNotFinite) {
    const checkpoint::TestFolder folder;
    const std::string from = checkpoint::reference_checkpoint("tiny_b");
    fs::copy(from, folder.path("bad"));
    std::fstream file(folder.path("bad/model.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
    const auto files = std::move(*checkpoint::open_tensor_files(from));
    const auto& tensor = files.tensors.at("layers.1.mlp.up_proj.weight");
    file.seekp(tensor.data.data() - files.shards[0].bytes().data() + 100);
    file.write("\xc0\x7f", 2);  // a BF16 NaN
    file.close();
    ThreadPool pool(1);
    QuantizeOptions options = options_for("tiny_b", folder.path("out"), Recipe::nvfp4_w4a16);
    options.source = folder.path("bad");
    options.choices.has_fp8_kv = false;
    const auto report = quantize(options, {}, pool);
    ASSERT_FALSE(report.has_value());
    EXPECT_NE(report.error().message.find("layers.1.mlp.up_proj"), std::string::npos) << report.error().message;
    EXPECT_FALSE(fs::exists(folder.path("out/config.json")));
}

TEST(Metadata, SaysWhatTheWeightsAre) {
    Plan plan;
    plan.choices.recipe = Recipe::fp8;
    plan.excluded = {"lm_head"};
    plan.unties_head = true;
    const Json config = {{"text_config", {{"tie_word_embeddings", true}}}, {"tie_word_embeddings", true}};
    const Json fp8 = quantised_config(config, plan, "1");
    EXPECT_EQ(fp8["tie_word_embeddings"], false);
    EXPECT_EQ(fp8["text_config"]["tie_word_embeddings"], false);
    EXPECT_EQ(fp8["quantization_config"]["quant_algo"], "FP8");
    EXPECT_FALSE(fp8["quantization_config"].contains("kv_cache_scheme"));
    EXPECT_TRUE(hf_quant_config(plan, "1")["quantization"]["kv_cache_quant_algo"].is_null());
    plan.choices.recipe = Recipe::nvfp4_w4a16;
    const Json weights_only = quantised_config(config, plan, "1")["quantization_config"];
    EXPECT_EQ(weights_only["quant_algo"], "W4A16_NVFP4");
    EXPECT_FALSE(weights_only["config_groups"]["group_0"].contains("input_activations"));
    plan.choices.recipe = Recipe::fp8_block;
    plan.plain = {"mtp.fc"};
    const Json block = quantised_config(config, plan, "1")["quantization_config"];
    EXPECT_EQ(block["weight_block_size"], Json({128, 128}));
    EXPECT_EQ(block["modules_to_not_convert"], Json({"mtp.fc"}));
    EXPECT_TRUE(hf_quant_config(plan, "1").is_null());
}

}  // namespace
}  // namespace espalier::quant
