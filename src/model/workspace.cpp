#include "model/workspace.h"

#include <algorithm>
#include <initializer_list>

namespace espalier::model {
namespace {

// Hands out 64-byte aligned pieces; the first round (base null) only measures.
class Arena {
public:
    explicit Arena(std::byte* base) : base_(base) {}
    template <class T>
    void take(T*& pointer, size_t count) {
        pointer = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
        used_ += (count * sizeof(T) + 63) / 64 * 64;
    }
    size_t used() const { return used_; }

private:
    std::byte* base_;
    size_t used_ = 0;
};

struct InputBytes {
    size_t first = 0;
    size_t inner = 0;
};

InputBytes input_bytes(const Model& model, int32_t rows) {
    InputBytes bytes;
    const auto include = [&](size_t& most, const LinearGroup& group) { most = std::max(most, group.scratch_bytes(rows)); };
    const auto include_layer = [&](const LayerWeights& layer) {
        include(bytes.first, layer.mlp.gate_up);
        include(bytes.inner, layer.mlp.down);
        include(bytes.first, layer.attention ? layer.attention->qkv : layer.recurrent->in);
        include(bytes.inner, layer.attention ? layer.attention->o : layer.recurrent->out);
    };
    include(bytes.first, model.head());
    for (const LayerWeights& layer : model.layers()) include_layer(layer);
    if (model.mtp() != nullptr) {
        include(bytes.first, model.mtp()->fc);
        include_layer(model.mtp()->layer);
    }
    return bytes;
}

}  // namespace

int64_t Workspace::head_rows_max(const PassLimits& limits) {
    return std::min(limits.rows_max, kHeadRows + limits.tree_nodes_max);
}

int64_t tail_blocks_max(const PassLimits& limits) {
    return limits.rows_max / cache::kPageTokens + 2 * limits.segments_max + 2 * (limits.segments_max + limits.tree_nodes_max);
}

Result<Workspace> Workspace::create(const Model& model, const PassLimits& limits, int32_t n_threads) {
    const ModelConfig& config = model.config();
    const cache::StateShape& shape = model.state_shape();
    Workspace w;
    const auto rows = static_cast<size_t>(limits.rows_max);
    const auto tree = static_cast<size_t>(limits.tree_nodes_max);
    const auto hidden = static_cast<size_t>(config.hidden);
    const auto channels = static_cast<size_t>(config.conv_channels());
    const auto heads = static_cast<size_t>(config.n_value_heads);
    const auto pairs = static_cast<size_t>(config.rotary_dim / 2);
    w.channels_ = channels;
    w.heads_ = heads;
    w.journal_rows_ = tree;
    w.journal_floats_ = tree * (2 * channels + 2 * heads);
    w.projected_width = std::max<int64_t>({2 * config.q_width() + 2 * config.kv_width(),
                                           config.conv_channels() + config.value_width() + 2 * config.n_value_heads,
                                           2 * static_cast<int64_t>(config.intermediate)});
    w.mixed_width = std::max<int64_t>({config.q_width(), config.value_width(), config.intermediate});
    w.kv_rows_bytes_ = (rows * static_cast<size_t>(config.kv_width()) * shape.kv_element_bytes() + 63) / 64 * 64;
    w.delta_scratch_floats_ = (1 + tree) * static_cast<size_t>(config.key_dim) * kernels::kDeltaColumns;
    const int64_t head_values = static_cast<int64_t>(config.n_value_heads) / std::max(config.n_key_heads, 1) * config.value_dim;
    const int64_t head_gates = 2 * config.n_value_heads / std::max(config.n_key_heads, 1);
    w.head_scratch_floats_ =
        static_cast<size_t>(head_rows_max(limits) * (2 * config.key_dim + 2 * head_values + head_gates) + 15) / 16 * 16;
    const size_t block_tokens = static_cast<size_t>(kernels::kKeyBlock * kernels::kPartitionBlocks);
    const size_t partitions = static_cast<size_t>(limits.context_tokens) / block_tokens + 1;
    // A task has at least the query heads of one KV head.
    const auto task_rows = static_cast<size_t>(std::max(kAttentionTaskRows, config.n_heads / config.n_kv_heads));
    w.attention_scratch_floats_ = partitions * task_rows * (static_cast<size_t>(config.head_dim) + 2);
    const size_t n_workers = static_cast<size_t>(n_threads);
    const InputBytes inputs = input_bytes(model, limits.rows_max);

    const auto lay_out = [&](std::byte* base) {
        Arena arena(base);
        arena.take(w.x, rows * hidden);
        arena.take(w.normed, rows * hidden);
        arena.take(w.hidden, rows * hidden);
        arena.take(w.concat, model.mtp() != nullptr ? rows * 2 * hidden : 0);
        arena.take(w.projected, rows * static_cast<size_t>(w.projected_width));
        arena.take(w.mixed, rows * static_cast<size_t>(w.mixed_width));
        arena.take(w.conv, rows * channels);
        arena.take(w.decay, rows * heads);
        arena.take(w.beta, rows * heads);
        arena.take(w.cos, rows * pairs);
        arena.take(w.sin, rows * pairs);
        arena.take(w.queries, rows * static_cast<size_t>(config.q_width()));
        arena.take(w.n_keys, rows * static_cast<size_t>(config.n_heads / config.n_kv_heads));
        arena.take(w.tail_blocks, static_cast<size_t>(tail_blocks_max(limits)) * static_cast<size_t>(config.n_kv_heads) * 2 *
                                      shape.block_bytes());
        arena.take(w.matmul_scratch, inputs.first);
        arena.take(w.inner_scratch, inputs.inner);
        arena.take(w.kv_rows_, static_cast<size_t>(shape.n_kv_layers) * 2 * w.kv_rows_bytes_);
        arena.take(w.journal_, static_cast<size_t>(shape.n_recurrent_layers) * w.journal_floats_);
        arena.take(w.delta_scratch_, n_workers * w.delta_scratch_floats_);
        arena.take(w.head_scratch_, n_workers * w.head_scratch_floats_);
        arena.take(w.attention_scratch_, n_workers * w.attention_scratch_floats_);
        return arena.used();
    };
    TRY_ASSIGN(w.memory_, Buffer::allocate(lay_out(nullptr)));
    lay_out(w.memory_.data());
    return w;
}

}  // namespace espalier::model
