#include "probe/make_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/writer.h"
#include "probe/random_weights.h"
#include "text/tokenizer.h"

namespace espalier::probe {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorToWrite;

constexpr int64_t kShardBytesMax = int64_t{4} << 30;
constexpr size_t kTokenizerBytesMax = 128 << 20;
constexpr int64_t kRealVocab = 248320;
constexpr int64_t kTinyVocab = 1024;

// Gains of random linear layers, N(0, gain / sqrt(fan_in)), as in the reference checkpoints: logits have a deviation of about 2.5
// at every depth and width. With a tied head the first layer must drown the embedding, or every token would predict itself.
struct BranchGains {
    double first;
    double later;
};
constexpr BranchGains kTiedGains = {3.0, 0.8};
constexpr BranchGains kUntiedGains = {0.4, 0.3};
constexpr double kAttentionGain = 2.0;
constexpr double kHeadGain = 2.5;
constexpr double kEmbeddingDeviation = 0.5;
// Calibration maxima for the input scales: activations after a norm stay below 8, gated products below 16.
constexpr float kInputMaximum = 16.0f;
constexpr float kKeyMaximum = 8.0f;
constexpr float kValueMaximum = 6.0f;

struct Shape {
    std::string_view name;
    int64_t hidden;
    int64_t intermediate;
    int64_t n_layers;
    int64_t n_heads;
    int64_t n_kv_heads;
    int64_t n_key_heads;
    int64_t n_value_heads;
    bool is_tied;
    int64_t vocab = kRealVocab;
    int64_t head_dim = 256;
    int64_t state_dim = 128;
};

// The published sizes of the Qwen3.5/3.6 family; tiny has their head sizes.
constexpr Shape kShapes[] = {
    {"tiny", 128, 256, 4, 4, 2, 2, 4, true, kTinyVocab}, {"0.8b", 1024, 3584, 24, 8, 2, 16, 16, true},
    {"2b", 2048, 6144, 24, 8, 2, 16, 16, true},          {"4b", 2560, 9216, 32, 16, 4, 16, 32, true},
    {"9b", 4096, 12288, 32, 16, 4, 16, 32, false},       {"27b", 5120, 17408, 64, 24, 4, 16, 48, false},
};

bool is_full_attention(int64_t layer) {
    return (layer + 1) % 4 == 0;
}

struct StopIds {
    int64_t end_of_text = 0;
    int64_t end_of_turn = 0;
};

// Lays out the tensors of one model. Scalars come first and bytes last, so that every tensor is aligned for its type.
class ModelPlan {
public:
    ModelPlan(const Shape& shape, bool is_nvfp4, RandomWeights& random)
        : shape_(shape), gains_(shape.is_tied ? kTiedGains : kUntiedGains), is_nvfp4_(is_nvfp4), random_(random) {}

    std::vector<TensorToWrite> build() {
        const int64_t h = shape_.hidden;
        const double embedding = shape_.is_tied ? kHeadGain / std::sqrt(static_cast<double>(h)) : kEmbeddingDeviation;
        values_.push_back(random_.normal("model.embed_tokens.weight", {shape_.vocab, h}, 0, embedding));
        excluded_.push_back("model.embed_tokens");
        for (int64_t layer = 0; layer < shape_.n_layers; ++layer) {
            const auto prefix = fmt::format("model.layers.{}", layer);
            const double gain = layer == 0 ? gains_.first : gains_.later;
            if (is_full_attention(layer)) {
                add_attention(prefix, gain);
                add_kv_scales(prefix + ".self_attn");
            } else {
                add_recurrent(prefix + ".linear_attn", gain);
            }
            add_block(prefix, gain);
        }
        add_norm("model.norm", h, 0);
        if (!shape_.is_tied) add_linear("lm_head", shape_.vocab, h, kHeadGain);
        add_mtp();
        std::vector<TensorToWrite> all;
        for (auto* part : {&scalars_, &values_, &scales_, &codes_})
            std::move(part->begin(), part->end(), std::back_inserter(all));
        return all;
    }
    const std::vector<std::string>& excluded() const { return excluded_; }

private:
    void add_norm(const std::string& module, int64_t n, double mean) {
        values_.push_back(random_.normal(module + ".weight", {n}, mean, 0.2));
    }
    void add_scalar(const std::string& name, float value) {
        scalars_.push_back(checkpoint::tensor_from_bytes(name, Dtype::f32, {}, std::as_bytes(std::span(&value, 1))));
    }
    void add_plain(const std::string& module, int64_t n, int64_t k) {
        values_.push_back(random_.normal(module + ".weight", {n, k}, 0, 1 / std::sqrt(static_cast<double>(k))));
        excluded_.push_back(module);
    }
    void add_linear(const std::string& module, int64_t n, int64_t k, double gain = 1) {
        const double deviation = gain / std::sqrt(static_cast<double>(k));
        if (!is_nvfp4_) {
            values_.push_back(random_.normal(module + ".weight", {n, k}, 0, deviation));
            return;
        }
        add_scalar(module + ".weight_scale_2", static_cast<float>(deviation / random_.nvfp4_rms()));
        add_scalar(module + ".input_scale", kInputMaximum / 2688);
        scales_.push_back(random_.nvfp4_scales(module + ".weight_scale", n, k));
        codes_.push_back(random_.nvfp4_codes(module + ".weight", n, k));
    }
    void add_attention(const std::string& layer, double gain) {
        const auto p = layer + ".self_attn.";
        const int64_t dim = shape_.head_dim;
        add_linear(p + "q_proj", shape_.n_heads * dim * 2, shape_.hidden);
        add_linear(p + "k_proj", shape_.n_kv_heads * dim, shape_.hidden);
        add_linear(p + "v_proj", shape_.n_kv_heads * dim, shape_.hidden);
        add_linear(p + "o_proj", shape_.hidden, shape_.n_heads * dim, gain * kAttentionGain);
        add_norm(p + "q_norm", dim, 0.5);
        add_norm(p + "k_norm", dim, 0.5);
    }
    void add_kv_scales(const std::string& attention) {
        if (!is_nvfp4_) return;
        add_scalar(attention + ".k_proj.k_scale", kKeyMaximum / 448);
        add_scalar(attention + ".v_proj.v_scale", kValueMaximum / 448);
    }
    void add_recurrent(const std::string& module, double gain) {
        const auto p = module + ".";
        const int64_t values = shape_.n_value_heads * shape_.state_dim;
        const int64_t channels = 2 * shape_.n_key_heads * shape_.state_dim + values;
        add_linear(p + "in_proj_qkv", channels, shape_.hidden);
        add_linear(p + "in_proj_z", values, shape_.hidden);
        add_plain(p + "in_proj_b", shape_.n_value_heads, shape_.hidden);
        add_plain(p + "in_proj_a", shape_.n_value_heads, shape_.hidden);
        add_linear(p + "out_proj", shape_.hidden, values, gain);
        values_.push_back(random_.normal(p + "conv1d.weight", {channels, 1, 4}, 0, 0.5));
        excluded_.push_back(p + "conv1d");
        values_.push_back(random_.uniform(p + "A_log", shape_.n_value_heads, 1, 16, [](double u) { return std::log(u); }));
        // The inverse of softplus: time steps of 1e-3 to 1e-1.
        values_.push_back(
            random_.uniform(p + "dt_bias", shape_.n_value_heads, 1e-3, 1e-1, [](double u) { return std::log(std::expm1(u)); }));
        add_norm(p + "norm", shape_.state_dim, 1);
    }
    void add_block(const std::string& layer, double gain) {
        add_linear(layer + ".mlp.gate_proj", shape_.intermediate, shape_.hidden);
        add_linear(layer + ".mlp.up_proj", shape_.intermediate, shape_.hidden);
        add_linear(layer + ".mlp.down_proj", shape_.hidden, shape_.intermediate, gain);
        add_norm(layer + ".input_layernorm", shape_.hidden, 0);
        add_norm(layer + ".post_attention_layernorm", shape_.hidden, 0);
    }
    void add_mtp() {
        add_plain("mtp.fc", shape_.hidden, 2 * shape_.hidden);
        for (const char* module : {"mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm"})
            add_norm(module, shape_.hidden, 0);
        add_attention("mtp.layers.0", gains_.later);
        add_block("mtp.layers.0", gains_.later);
    }

    const Shape& shape_;
    BranchGains gains_;
    bool is_nvfp4_;
    RandomWeights& random_;
    std::vector<TensorToWrite> scalars_;
    std::vector<TensorToWrite> values_;
    std::vector<TensorToWrite> scales_;
    std::vector<TensorToWrite> codes_;
    std::vector<std::string> excluded_;
};

Json model_config(const Shape& shape, const StopIds& stops) {
    Json layer_types = Json::array();
    for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
        layer_types.push_back(is_full_attention(layer) ? "full_attention" : "linear_attention");
    }
    return {
        {"architectures", {"Qwen3_5ForCausalLM"}},
        {"attention_bias", false},
        {"attention_dropout", 0.0},
        {"attn_output_gate", true},
        {"dtype", "bfloat16"},
        {"eos_token_id", stops.end_of_text},
        {"full_attention_interval", 4},
        {"head_dim", shape.head_dim},
        {"hidden_act", "silu"},
        {"hidden_size", shape.hidden},
        {"intermediate_size", shape.intermediate},
        {"layer_types", layer_types},
        {"linear_conv_kernel_dim", 4},
        {"linear_key_head_dim", shape.state_dim},
        {"linear_num_key_heads", shape.n_key_heads},
        {"linear_num_value_heads", shape.n_value_heads},
        {"linear_value_head_dim", shape.state_dim},
        {"mamba_ssm_dtype", "float32"},
        {"max_position_embeddings", 262144},
        {"model_type", "qwen3_5_text"},
        {"mtp_num_hidden_layers", 1},
        {"mtp_use_dedicated_embeddings", false},
        {"num_attention_heads", shape.n_heads},
        {"num_hidden_layers", shape.n_layers},
        {"num_key_value_heads", shape.n_kv_heads},
        {"rms_norm_eps", 1e-6},
        {"rope_parameters",
         {{"rope_type", "default"},
          {"rope_theta", 10000000},
          {"partial_rotary_factor", 0.25},
          {"mrope_section", {11, 11, 10}},
          {"mrope_interleaved", true}}},
        {"tie_word_embeddings", shape.is_tied},
        {"use_cache", true},
        {"vocab_size", shape.vocab},
    };
}

Json quantization_config(const std::vector<std::string>& excluded) {
    const Json four_bits = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
    return {
        {"config_groups", {{"group_0", {{"input_activations", four_bits}, {"weights", four_bits}, {"targets", {"Linear"}}}}}},
        {"ignore", excluded},
        {"quant_algo", "NVFP4"},
        {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}},
        {"producer", {{"name", "espalier"}, {"version", "random weights"}}},
        {"quant_method", "modelopt"},
    };
}

Json hf_quant_config(const std::vector<std::string>& excluded) {
    return {
        {"producer", {{"name", "espalier"}, {"version", "random weights"}}},
        {"quantization",
         {{"quant_algo", "NVFP4"}, {"kv_cache_quant_algo", "FP8"}, {"group_size", 16}, {"exclude_modules", excluded}}},
    };
}

Json generation_config(const StopIds& stops) {
    return {
        {"bos_token_id", stops.end_of_text},
        {"do_sample", true},
        {"eos_token_id", {stops.end_of_turn, stops.end_of_text}},
        {"pad_token_id", stops.end_of_text},
        {"temperature", 1.0},
        {"top_k", 20},
        {"top_p", 0.95},
    };
}

// Number of ids and the stop ids of a tokenizer.json.
Status read_tokenizer(const std::string& path, const std::string& text, int64_t& n_ids, StopIds& stops) {
    const auto tokenizer = text::Tokenizer::parse(text);
    if (!tokenizer) return invalid_input(fmt::format("{}: {}; expected a tokenizer.json", path, tokenizer.error().message));
    n_ids = (*tokenizer)->vocab_size();
    const auto id_of = [&](std::string_view content, int64_t otherwise) {
        const int64_t id = (*tokenizer)->added_token_id(content);
        return id >= 0 ? id : otherwise;
    };
    stops.end_of_text = id_of("<|endoftext|>", n_ids - 1);
    stops.end_of_turn = id_of("<|im_end|>", stops.end_of_text);
    return {};
}

Result<Shape> find_shape(std::string_view name) {
    for (const auto& shape : kShapes) {
        if (shape.name == name) return shape;
    }
    return invalid_input(fmt::format("shape '{}' is unknown, expected tiny, 0.8b, 2b, 4b, 9b or 27b", name));
}

Status write_json(const fs::path& path, const Json& value) {
    return write_file_atomic(path.string(), dump_json(value, 2) + "\n");
}

// Copies the tokenizer and the template beside the weights and fits vocabulary and stop ids to the tokenizer.
Status add_text_files(const MakeModelOptions& options, Shape& shape, StopIds& stops) {
    stops = shape.vocab == kRealVocab ? StopIds{248044, 248046} : StopIds{shape.vocab - 4, shape.vocab - 2};
    const fs::path out = options.out_dir;
    if (!options.tokenizer_path.empty()) {
        TRY_ASSIGN(const auto text, read_file(options.tokenizer_path, kTokenizerBytesMax));
        int64_t n_ids = 0;
        TRY(read_tokenizer(options.tokenizer_path, text, n_ids, stops));
        if (shape.name == "tiny") shape.vocab = n_ids;
        if (n_ids > shape.vocab) {
            return invalid_input(
                fmt::format("{}: {} ids do not fit the shape's vocabulary of {}", options.tokenizer_path, n_ids, shape.vocab));
        }
        TRY(write_file_atomic((out / "tokenizer.json").string(), text));
    }
    if (!options.chat_template_path.empty()) {
        TRY_ASSIGN(const auto text, read_file(options.chat_template_path, kTokenizerBytesMax));
        TRY(write_file_atomic((out / "chat_template.jinja").string(), text));
    }
    return {};
}

}  // namespace

Status make_model(const MakeModelOptions& options) {
    TRY_ASSIGN(auto shape, find_shape(options.shape));
    const bool is_nvfp4 = options.format == "nvfp4";
    if (!is_nvfp4 && options.format != "bf16") {
        return invalid_input(fmt::format("format '{}' is unknown, expected bf16 or nvfp4", options.format));
    }
    const fs::path out = options.out_dir;
    std::error_code error;
    if (fs::exists(out / "config.json", error)) {
        return invalid_input(fmt::format("{}: already holds a model (config.json); choose another folder", options.out_dir));
    }
    fs::create_directories(out, error);
    if (error) return invalid_input(fmt::format("{}: cannot create: {}", options.out_dir, error.message()));
    // A quantised head is a tensor of its own.
    if (is_nvfp4) shape.is_tied = false;
    StopIds stops;
    TRY(add_text_files(options, shape, stops));
    RandomWeights random(options.seed, static_cast<int>(std::thread::hardware_concurrency()));
    ModelPlan plan(shape, is_nvfp4, random);
    // Random weights can be made again: waiting for the disk would take most of the time.
    TRY(checkpoint::write_weights(options.out_dir, plan.build(), kShardBytesMax, checkpoint::Flush::to_cache));
    Json config = model_config(shape, stops);
    if (is_nvfp4) {
        config["quantization_config"] = quantization_config(plan.excluded());
        TRY(write_json(out / "hf_quant_config.json", hf_quant_config(plan.excluded())));
    }
    TRY(write_json(out / "generation_config.json", generation_config(stops)));
    return write_json(out / "config.json", config);
}

}  // namespace espalier::probe
