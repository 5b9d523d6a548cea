// Binds a checkpoint's tensors to the model's fields, once, with every name and shape checked.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/gather/gather.h"
#include "model/model.h"

namespace espalier::model {

class ModelLoader {
public:
    ModelLoader(Model& model, const LoadOptions& options, ThreadPool& pool)
        : model_(model), options_(options), pool_(pool), file_(*model.checkpoint_), config_(model.config_) {}

    Status run() {
        model_.kernels_ = &kernels::kernel_table(options_.isa);
        model_.acts_ = options_.acts;
        model_.state_shape_.kv = options_.kv.value_or(options_.acts == kernels::Acts::a32 ? kernels::KvType::f32
                                                      : file_.declares_fp8_kv()           ? kernels::KvType::fp8
                                                                                          : kernels::KvType::bf16);
        bytes_total_ = 0;
        for (const auto& tensor : file_.tensors()) bytes_total_ += tensor.bytes;
        TRY(bind_head_and_embedding());
        TRY_ASSIGN(model_.final_norm_, norm("norm.weight", config_.hidden));
        const int32_t layer_end = std::min(options_.part.layer_end, config_.n_layers);
        for (int32_t i = options_.part.layer_begin; i < layer_end; ++i) {
            TRY(bind_layer(fmt::format("layers.{}", i), config_.layers[static_cast<size_t>(i)], model_.layers_.emplace_back()));
        }
        if (options_.part.has_mtp && file_.has_linear("mtp.fc")) TRY(bind_mtp());
        if (options_.part.is_whole()) TRY(file_.check_all_used());
        make_constants();
        return {};
    }

private:
    // RMSNorm weights are stored as w and used as 1 + w; folded here once.
    Result<std::vector<float>> norm(const std::string& name, int64_t n) {
        TRY_ASSIGN(std::vector<float> weight, floats(name, {n}));
        for (float& w : weight) w = 1.0f + w;
        return weight;
    }

    Result<std::vector<float>> floats(const std::string& name, std::vector<int64_t> shape) { return file_.floats(name, shape); }

    struct Part {
        const char* name;
        int64_t n;
    };
    Result<LinearGroup> group(const std::string& prefix, std::initializer_list<Part> parts, int64_t k) {
        std::vector<WeightView> views;
        for (const Part& part : parts) {
            TRY_ASSIGN(WeightView view, file_.linear(prefix + part.name, part.n, k));
            views.push_back(std::move(view));
        }
        TRY_ASSIGN(LinearGroup packed, LinearGroup::pack(views, options_.acts, options_.isa, pool_));
        for (const WeightView& view : views) {
            bytes_done_ += static_cast<int64_t>(view.data.size());
            file_.release(view);
        }
        if (options_.progress) options_.progress(bytes_done_, bytes_total_);
        model_.weight_bytes_ += packed.bytes();
        return packed;
    }

    // True when config.json says in so many words that the head is a matrix of its own.
    bool declares_untied() const {
        bool untied = false;
        for (const Json* config : {&file_.raw_config(), &file_.text_config()}) {
            const auto tie = config->find("tie_word_embeddings");
            if (tie == config->end() || !tie->is_boolean()) continue;
            if (tie->get<bool>()) return false;
            untied = true;
        }
        return untied;
    }

    Status bind_head_and_embedding() {
        // lm_head if the file has one; a file without one is tied unless it says otherwise, then lm_head is missing.
        const bool has_head = file_.has_linear("lm_head") || declares_untied();
        if (options_.part.has_head) {
            TRY_ASSIGN(model_.head_, group("", {{has_head ? "lm_head" : "embed_tokens", config_.vocab}}, config_.hidden));
        }
        if (options_.part.has_embedding && (has_head || !options_.part.has_head)) {
            TRY_ASSIGN(model_.embedding_, file_.linear("embed_tokens", config_.vocab, config_.hidden));
            model_.weight_bytes_ += model_.embedding_->data.size();
        }
        return {};
    }

    Status bind_layer(const std::string& name, LayerKind kind, LayerWeights& layer) {
        TRY_ASSIGN(layer.input_norm, norm(name + ".input_layernorm.weight", config_.hidden));
        TRY_ASSIGN(layer.post_norm, norm(name + ".post_attention_layernorm.weight", config_.hidden));
        if (kind == LayerKind::attention) {
            layer.attention = std::make_unique<AttentionWeights>();
            layer.kv_index = n_kv_layers_++;
            TRY(bind_attention(name + ".self_attn", *layer.attention));
        } else {
            layer.recurrent = std::make_unique<RecurrentWeights>();
            layer.recurrent_index = n_recurrent_layers_++;
            TRY(bind_recurrent(name + ".linear_attn", *layer.recurrent));
        }
        TRY_ASSIGN(
            layer.mlp.gate_up,
            group(name + ".mlp.", {{"gate_proj", config_.intermediate}, {"up_proj", config_.intermediate}}, config_.hidden));
        TRY_ASSIGN(layer.mlp.down, group(name + ".mlp.", {{"down_proj", config_.hidden}}, config_.intermediate));
        return {};
    }

    Status bind_attention(const std::string& name, AttentionWeights& weights) {
        TRY_ASSIGN(
            weights.qkv,
            group(name + ".", {{"q_proj", 2 * config_.q_width()}, {"k_proj", config_.kv_width()}, {"v_proj", config_.kv_width()}},
                  config_.hidden));
        TRY_ASSIGN(weights.o, group(name + ".", {{"o_proj", config_.hidden}}, config_.q_width()));
        TRY_ASSIGN(weights.q_norm, norm(name + ".q_norm.weight", config_.head_dim));
        TRY_ASSIGN(weights.k_norm, norm(name + ".k_norm.weight", config_.head_dim));
        TRY_ASSIGN(const checkpoint::KvScales scales, file_.kv_scales(name));
        weights.k_scale = scales.k;
        weights.v_scale = scales.v;
        // The softmax scale, and the scale of FP8 keys, ride on the query norm (rotation is linear).
        float query_scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
        if (model_.state_shape_.kv == kernels::KvType::fp8) query_scale *= scales.k;
        for (float& w : weights.q_norm) w *= query_scale;
        return {};
    }

    Status bind_recurrent(const std::string& name, RecurrentWeights& weights) {
        const int64_t channels = config_.conv_channels();
        const int64_t heads = config_.n_value_heads;
        TRY_ASSIGN(
            weights.in,
            group(name + ".",
                  {{"in_proj_qkv", channels}, {"in_proj_z", config_.value_width()}, {"in_proj_b", heads}, {"in_proj_a", heads}},
                  config_.hidden));
        TRY_ASSIGN(weights.out, group(name + ".", {{"out_proj", config_.hidden}}, config_.value_width()));
        TRY_ASSIGN(const std::vector<float> conv, floats(name + ".conv1d.weight", {channels, 4}));
        weights.conv.resize(conv.size());
        for (int64_t c = 0; c < channels; ++c) {
            for (int64_t tap = 0; tap < 4; ++tap) {
                weights.conv[static_cast<size_t>(tap * channels + c)] = conv[static_cast<size_t>(c * 4 + tap)];
            }
        }
        TRY_ASSIGN(weights.neg_exp_a_log, floats(name + ".A_log", {heads}));
        for (float& value : weights.neg_exp_a_log) value = -std::exp(value);
        TRY_ASSIGN(weights.dt_bias, floats(name + ".dt_bias", {heads}));
        TRY_ASSIGN(weights.norm, floats(name + ".norm.weight", {config_.value_dim}));
        return {};
    }

    Status bind_mtp() {
        model_.mtp_ = std::make_unique<MtpWeights>();
        MtpWeights& mtp = *model_.mtp_;
        TRY_ASSIGN(mtp.embedding_norm, norm("mtp.pre_fc_norm_embedding.weight", config_.hidden));
        TRY_ASSIGN(mtp.hidden_norm, norm("mtp.pre_fc_norm_hidden.weight", config_.hidden));
        TRY_ASSIGN(mtp.norm, norm("mtp.norm.weight", config_.hidden));
        TRY_ASSIGN(mtp.fc, group("", {{"mtp.fc", config_.hidden}}, 2 * static_cast<int64_t>(config_.hidden)));
        return bind_layer("mtp.layers.0", LayerKind::attention, mtp.layer);
    }

    void make_constants() {
        const int32_t n_pairs = config_.rotary_dim / 2;
        for (int32_t i = 0; i < n_pairs; ++i) {
            // Float arithmetic as in the reference: 1 / theta^(2i / dim).
            const float exponent = static_cast<float>(2 * i) / static_cast<float>(config_.rotary_dim);
            model_.inverse_frequencies_.push_back(1.0f / std::pow(static_cast<float>(config_.rope_theta), exponent));
        }
        cache::StateShape& shape = model_.state_shape_;
        shape.n_kv_layers = n_kv_layers_;
        shape.has_mtp_layer = model_.mtp_ != nullptr;
        shape.n_kv_heads = config_.n_kv_heads;
        shape.head_dim = config_.head_dim;
        shape.n_recurrent_layers = n_recurrent_layers_;
        shape.n_value_heads = config_.n_value_heads;
        shape.key_dim = config_.key_dim;
        shape.value_dim = config_.value_dim;
        shape.conv_channels = config_.conv_channels();
        shape.hidden = config_.hidden;
        model_.eos_ids_ = config_.eos_ids;
        for (const int32_t id : file_.generation_defaults().eos_ids) {
            if (std::find(model_.eos_ids_.begin(), model_.eos_ids_.end(), id) == model_.eos_ids_.end())
                model_.eos_ids_.push_back(id);
        }
    }

    Model& model_;
    const LoadOptions& options_;
    ThreadPool& pool_;
    checkpoint::Checkpoint& file_;
    const ModelConfig& config_;
    int64_t bytes_done_ = 0;
    int64_t bytes_total_ = 0;
    int32_t n_kv_layers_ = 0;
    int32_t n_recurrent_layers_ = 0;
};

Result<std::unique_ptr<const Model>> Model::load(std::unique_ptr<checkpoint::Checkpoint> checkpoint, const LoadOptions& options,
                                                 ThreadPool& pool) {
    std::unique_ptr<Model> model(new Model());
    model->checkpoint_ = std::move(checkpoint);
    TRY_ASSIGN(model->config_, ModelConfig::parse(model->checkpoint_->text_config()));
    ModelLoader loader(*model, options, pool);
    TRY(loader.run());
    return std::unique_ptr<const Model>(std::move(model));
}

void Model::embed(int32_t token, float* out) const {
    CHECK(token >= 0 && token < config_.vocab, "token ids are checked when a job is admitted");
    if (embedding_) kernels::gather_row(*embedding_, token, out);
    else head_.matrices().front().unpack_row(token, out);
}

}  // namespace espalier::model
