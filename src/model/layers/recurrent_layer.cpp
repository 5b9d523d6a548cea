// Gated DeltaNet: short causal convolution, l2-normed keys and queries, the gated delta rule, gated norm.
//
// One recurrence only (law 1): the spine runs token by token from the committed state into a fresh state slot; draft nodes
// run from there in scratch, each from its parent's state. Column blocks of a head's state are independent, so they are the unit
// of parallel work and stay in L1 for the whole chunk. For draft nodes the raw convolution inputs and the normed keys, values
// and gates are kept, so that commit can replay the accepted path with the same arithmetic.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/layers/layers.h"

namespace espalier::model {
namespace {

// Convolution, SiLU and l2 norms of queries and keys; values stay as the convolution leaves them.
void run_conv(const LayerContext& context, const RecurrentWeights& weights, int32_t layer, int64_t in_width) {
    const ModelConfig& config = context.model.config();
    const kernels::KernelTable& k = context.model.kernels();
    Workspace& w = context.work;
    const int64_t channels = config.conv_channels();
    const int64_t key_channels = static_cast<int64_t>(config.n_key_heads) * config.key_dim;
    const float q_scale = 1.0f / std::sqrt(static_cast<float>(config.key_dim));
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t index = begin; index < end; ++index) {
            const PassRow& row = context.pass.rows()[static_cast<size_t>(index)];
            const PassSegment& segment = context.pass.segments()[static_cast<size_t>(row.segment)];
            const float* committed = context.memory.conv(segment.sequence->state(), layer);
            kernels::Conv1dArgs args;
            int32_t column = cache::kConvColumns;
            int32_t at = index;
            for (int tap = 3; tap >= 0; --tap) {
                if (at >= 0) {
                    args.x[tap] = w.projected + at * in_width;
                    at = context.pass.rows()[static_cast<size_t>(at)].parent_row;
                } else {
                    args.x[tap] = committed + --column * channels;
                }
            }
            args.weight = weights.conv.data();
            args.weight_stride = channels;
            args.y = w.conv + index * channels;
            args.n_channels = channels;
            k.conv1d(args);

            kernels::NormArgs norm;
            norm.x = args.y;
            norm.y = args.y;
            norm.x_stride = norm.y_stride = config.key_dim;
            norm.n = config.key_dim;
            norm.n_rows = config.n_key_heads;
            norm.eps = 1e-6f;  // fixed in the reference, not the model's rms eps
            norm.scale = q_scale;
            k.l2norm(norm);
            norm.x = args.y + key_channels;
            norm.y = args.y + key_channels;
            norm.scale = 1.0f;
            k.l2norm(norm);

            if (row.tree_row < 0) continue;
            const size_t bytes = static_cast<size_t>(channels) * sizeof(float);
            std::memcpy(w.journal_raw(layer) + row.tree_row * channels, args.x[3], bytes);
            std::memcpy(w.journal_conv(layer) + row.tree_row * channels, args.y, bytes);
        }
    });
}

void run_gates(const LayerContext& context, const RecurrentWeights& weights, int32_t layer, int64_t in_width) {
    const ModelConfig& config = context.model.config();
    Workspace& w = context.work;
    const int64_t heads = config.n_value_heads;
    const int64_t b_offset = config.conv_channels() + config.value_width();
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        kernels::DeltaGatesArgs args;
        args.b = w.projected + begin * in_width + b_offset;
        args.a = args.b + heads;
        args.in_stride = in_width;
        args.neg_exp_a_log = weights.neg_exp_a_log.data();
        args.dt_bias = weights.dt_bias.data();
        args.decay = w.decay + begin * heads;
        args.beta = w.beta + begin * heads;
        args.out_stride = heads;
        args.n_rows = end - begin;
        args.n_heads = heads;
        context.model.kernels().delta_gates(args);
        for (int32_t index = begin; index < end; ++index) {
            const int32_t tree_row = context.pass.rows()[static_cast<size_t>(index)].tree_row;
            if (tree_row < 0) continue;
            std::memcpy(w.journal_decay(layer) + tree_row * heads, w.decay + index * heads,
                        static_cast<size_t>(heads) * sizeof(float));
            std::memcpy(w.journal_beta(layer) + tree_row * heads, w.beta + index * heads,
                        static_cast<size_t>(heads) * sizeof(float));
        }
    });
}

// Conv columns after n further inputs, the i-th of them at input_at(i); fewer than three inputs keep some of the old columns.
template <class InputAt>
void advance_conv_columns(int64_t channels, const float* from, float* to, int64_t n, const InputAt& input_at) {
    for (int64_t column = 0; column < cache::kConvColumns; ++column) {
        const int64_t i = n - cache::kConvColumns + column;
        const float* source = i >= 0 ? input_at(i) : from + (cache::kConvColumns + i) * channels;
        std::memcpy(to + column * channels, source, static_cast<size_t>(channels) * sizeof(float));
    }
}

// The raw inputs of the spine become the conv columns of the working state.
void record_conv_columns(const LayerContext& context, int32_t layer, int64_t in_width) {
    for (size_t s = 0; s < context.pass.segments().size(); ++s) {
        const PassSegment& segment = context.pass.segments()[s];
        advance_conv_columns(context.model.config().conv_channels(), context.memory.conv(segment.sequence->state(), layer),
                             context.memory.conv(context.working_states[s], layer), segment.spine,
                             [&](int64_t i) { return context.work.projected + (segment.row_begin + i) * in_width; });
    }
}

// Column blocks of all value heads: the independent pieces of the delta rule.
int64_t delta_blocks(const ModelConfig& config) {
    return config.n_value_heads * ((config.value_dim + kernels::kDeltaColumns - 1) / kernels::kDeltaColumns);
}

// Arguments of one block over rows `row` onwards of work.conv, decay and beta, from one state slot into another: shared by the
// pass and by replay, so that both do the same arithmetic. Nodes and outputs are the caller's.
kernels::DeltaArgs delta_args(const LayerContext& context, int32_t layer, int64_t block, int64_t row, int32_t from, int32_t to) {
    const ModelConfig& config = context.model.config();
    const int64_t blocks_per_head = delta_blocks(config) / config.n_value_heads;
    const int64_t head = block / blocks_per_head;
    const int64_t column = block % blocks_per_head * kernels::kDeltaColumns;
    const int64_t dk = config.key_dim;
    const int64_t dv = config.value_dim;
    const int64_t channels = config.conv_channels();
    const float* conv = context.work.conv + row * channels;
    kernels::DeltaArgs args;
    args.q = conv + head / (config.n_value_heads / config.n_key_heads) * dk;
    args.k = args.q + config.n_key_heads * dk;
    args.qk_stride = channels;
    args.v = conv + 2 * config.n_key_heads * dk + head * dv + column;
    args.v_stride = channels;
    args.decay = context.work.decay + row * config.n_value_heads + head;
    args.beta = context.work.beta + row * config.n_value_heads + head;
    args.gate_stride = config.n_value_heads;
    args.dk = dk;
    args.n_columns = std::min<int64_t>(kernels::kDeltaColumns, dv - column);
    args.state_in = context.memory.recurrent(from, layer) + head * dk * dv + column;
    args.state_out = context.memory.recurrent(to, layer) + head * dk * dv + column;
    args.state_stride = dv;
    return args;
}

void run_delta(const LayerContext& context, int32_t layer) {
    const ModelConfig& config = context.model.config();
    const int64_t n_blocks = delta_blocks(config);
    const int64_t blocks_per_head = n_blocks / config.n_value_heads;
    const auto n_segments = static_cast<int64_t>(context.pass.segments().size());
    context.pool.run(n_segments * n_blocks, [&](int64_t task, int worker) {
        const auto s = static_cast<size_t>(task / n_blocks);
        const PassSegment& segment = context.pass.segments()[s];
        const int64_t block = task % n_blocks;
        const int64_t row = segment.row_begin;
        kernels::DeltaArgs args = delta_args(context, layer, block, row, segment.sequence->state(), context.working_states[s]);
        args.parents = context.pass.parents().data() + row;
        args.n_nodes = segment.n_nodes;
        args.spine = segment.spine;
        args.out = context.work.mixed + row * config.value_width() + block / blocks_per_head * config.value_dim +
                   block % blocks_per_head * kernels::kDeltaColumns;
        args.out_stride = config.value_width();
        args.scratch = context.work.delta_scratch(worker);
        context.model.kernels().delta(args);
    });
}

// Brings a path's journal rows into consecutive rows of work.conv, decay and beta, which are free between passes.
void gather_journal(const LayerContext& context, int32_t layer, std::span<const int32_t> tree_rows) {
    Workspace& w = context.work;
    const int64_t channels = context.model.config().conv_channels();
    const int64_t heads = context.model.config().n_value_heads;
    for (size_t i = 0; i < tree_rows.size(); ++i) {
        const auto to = static_cast<int64_t>(i);
        const int64_t from = tree_rows[i];
        std::memcpy(w.conv + to * channels, w.journal_conv(layer) + from * channels,
                    static_cast<size_t>(channels) * sizeof(float));
        std::memcpy(w.decay + to * heads, w.journal_decay(layer) + from * heads, static_cast<size_t>(heads) * sizeof(float));
        std::memcpy(w.beta + to * heads, w.journal_beta(layer) + from * heads, static_cast<size_t>(heads) * sizeof(float));
    }
}

}  // namespace

void run_recurrent(const LayerContext& context, const LayerWeights& layer) {
    const ModelConfig& config = context.model.config();
    const RecurrentWeights& weights = *layer.recurrent;
    Workspace& w = context.work;
    const int64_t hidden = config.hidden;
    const int64_t in_width = weights.in.width();
    const int64_t value_width = config.value_width();
    const int32_t m = context.pass.n_rows();
    norm_rows(context, layer.input_norm, w.x, w.normed);
    observe(context, ActivationSite::mixer_in, w.normed, hidden, hidden);
    weights.in.apply(w.normed, hidden, m, w.projected, in_width, w.matmul_scratch, context.pool);
    run_conv(context, weights, layer.recurrent_index, in_width);
    run_gates(context, weights, layer.recurrent_index, in_width);
    record_conv_columns(context, layer.recurrent_index, in_width);
    run_delta(context, layer.recurrent_index);
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t row = begin; row < end; ++row) {
            kernels::NormArgs args;
            args.x = w.mixed + row * value_width;
            args.y = w.mixed + row * value_width;
            args.x_stride = args.y_stride = args.z_stride = config.value_dim;
            args.z = w.projected + row * in_width + config.conv_channels();
            args.weight = weights.norm.data();
            args.n_rows = config.n_value_heads;
            args.n = config.value_dim;
            args.eps = config.rms_eps;
            context.model.kernels().gated_rmsnorm(args);
        }
    });
    observe(context, ActivationSite::mixer_out, w.mixed, value_width, value_width);
    weights.out.apply(w.mixed, value_width, m, w.output, hidden, w.matmul_scratch, context.pool);
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        context.model.kernels().add({w.x + begin * hidden, w.output + begin * hidden, (end - begin) * hidden});
    });
}

void replay_recurrent(const LayerContext& context, std::span<const int32_t> tree_rows, int32_t from, int32_t to) {
    const int64_t channels = context.model.config().conv_channels();
    const auto n = static_cast<int64_t>(tree_rows.size());
    for (int32_t layer = 0; layer < context.model.state_shape().n_recurrent_layers; ++layer) {
        gather_journal(context, layer, tree_rows);
        const float* raw = context.work.journal_raw(layer);
        advance_conv_columns(channels, context.memory.conv(from, layer), context.memory.conv(to, layer), n,
                             [&](int64_t i) { return raw + tree_rows[static_cast<size_t>(i)] * channels; });
        context.pool.run(delta_blocks(context.model.config()), [&](int64_t block, int worker) {
            kernels::DeltaArgs args = delta_args(context, layer, block, 0, from, to);
            args.n_nodes = n;
            args.spine = n;
            args.scratch = context.work.delta_scratch(worker);
            context.model.kernels().delta(args);
        });
    }
}

}  // namespace espalier::model
