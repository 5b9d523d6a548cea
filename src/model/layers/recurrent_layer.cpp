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

// The last three raw inputs of the spine become the conv columns of the working state.
void record_conv_columns(const LayerContext& context, int32_t layer, int64_t in_width) {
    const int64_t channels = context.model.config().conv_channels();
    const size_t bytes = static_cast<size_t>(channels) * sizeof(float);
    for (size_t s = 0; s < context.pass.segments().size(); ++s) {
        const PassSegment& segment = context.pass.segments()[s];
        const float* from = context.memory.conv(segment.sequence->state(), layer);
        float* to = context.memory.conv(context.working_states[s], layer);
        for (int32_t column = 0; column < cache::kConvColumns; ++column) {
            const int32_t node = segment.spine - cache::kConvColumns + column;
            const float* source = node >= 0 ? context.work.projected + (segment.row_begin + node) * in_width
                                            : from + (cache::kConvColumns + node) * channels;
            std::memcpy(to + column * channels, source, bytes);
        }
    }
}

void run_delta(const LayerContext& context, int32_t layer) {
    const ModelConfig& config = context.model.config();
    Workspace& w = context.work;
    const int64_t channels = config.conv_channels();
    const int64_t dk = config.key_dim;
    const int64_t dv = config.value_dim;
    const int64_t heads_per_key = config.n_value_heads / config.n_key_heads;
    const int64_t blocks = (dv + kernels::kDeltaColumns - 1) / kernels::kDeltaColumns;
    const int64_t tasks_per_segment = config.n_value_heads * blocks;
    const int64_t n_segments = static_cast<int64_t>(context.pass.segments().size());
    context.pool.run(n_segments * tasks_per_segment, [&](int64_t task, int worker) {
        const PassSegment& segment = context.pass.segments()[static_cast<size_t>(task / tasks_per_segment)];
        const int64_t head = task % tasks_per_segment / blocks;
        const int64_t column = task % blocks * kernels::kDeltaColumns;
        const int64_t row = segment.row_begin;
        const float* conv = w.conv + row * channels;
        kernels::DeltaArgs args;
        args.q = conv + head / heads_per_key * dk;
        args.k = args.q + config.n_key_heads * dk;
        args.qk_stride = channels;
        args.v = conv + 2 * config.n_key_heads * dk + head * dv + column;
        args.v_stride = channels;
        args.decay = w.decay + row * config.n_value_heads + head;
        args.beta = w.beta + row * config.n_value_heads + head;
        args.gate_stride = config.n_value_heads;
        args.parents = context.pass.parents().data() + row;
        args.n_nodes = segment.n_nodes;
        args.spine = segment.spine;
        args.dk = dk;
        args.n_columns = std::min<int64_t>(kernels::kDeltaColumns, dv - column);
        const int64_t state_offset = head * dk * dv + column;
        args.state_in = context.memory.recurrent(segment.sequence->state(), layer) + state_offset;
        args.state_out =
            context.memory.recurrent(context.working_states[static_cast<size_t>(task / tasks_per_segment)], layer) + state_offset;
        args.state_stride = dv;
        args.out = w.mixed + row * config.value_width() + head * dv + column;
        args.out_stride = config.value_width();
        args.scratch = w.delta_scratch(worker);
        context.model.kernels().delta(args);
    });
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

}  // namespace espalier::model
