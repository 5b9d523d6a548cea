// Gated DeltaNet: short causal convolution, l2-normed keys and queries, the gated delta rule, gated norm.
//
// One recurrence only (law 1): the spine runs token by token from the committed state into a fresh state slot; draft nodes
// run from there in scratch, each from its parent's state. For draft nodes the raw convolution inputs and the normed keys, values
// and gates are kept, so that commit can replay the accepted path with the same arithmetic.
//
// A key head with the value heads that read it is the unit of work, from the convolution to the inputs of the second matrix: one
// region of the pool, and what a head's rows become stays in L2. Long chunks go through it by kChunkRows. With more threads
// than heads, rows and then column blocks of the states are the units instead, in three regions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/layers/layers.h"

namespace espalier::model {
namespace {

// Rows of one head that fit L2 with queries, keys, values and outputs: 128 * 2 KiB.
constexpr int64_t kChunkRows = 128;

struct Recurrent {
    const LayerContext& context;
    const RecurrentWeights& weights;
    int32_t layer;
    int64_t channels;
    int64_t key_channels;  // of queries, and of keys
    int64_t heads_per_key;

    Recurrent(const LayerContext& context_, const LayerWeights& layer_)
        : context(context_), weights(*layer_.recurrent), layer(layer_.recurrent_index) {
        const ModelConfig& config = context.model.config();
        channels = config.conv_channels();
        key_channels = static_cast<int64_t>(config.n_key_heads) * config.key_dim;
        heads_per_key = config.n_value_heads / config.n_key_heads;
    }
    int64_t in_width() const { return weights.in.width(); }
};

struct Channels {
    int64_t begin;
    int64_t n;
};

// Convolution and SiLU of some channels of one row.
void convolve(const Recurrent& r, int32_t index, Channels range) {
    const LayerContext& context = r.context;
    const PassRow& row = context.pass.rows()[static_cast<size_t>(index)];
    const PassSegment& segment = context.pass.segments()[static_cast<size_t>(row.segment)];
    const float* committed = context.memory.conv(segment.sequence->state(), r.layer) + range.begin;
    kernels::Conv1dArgs args;
    int32_t column = cache::kConvColumns;
    int32_t at = index;
    for (int tap = 3; tap >= 0; --tap) {
        if (at >= 0) {
            args.x[tap] = context.work.projected + at * r.in_width() + range.begin;
            at = context.pass.rows()[static_cast<size_t>(at)].parent_row;
        } else {
            args.x[tap] = committed + --column * r.channels;
        }
    }
    args.weight = r.weights.conv.data() + range.begin;
    args.weight_stride = r.channels;
    args.y = context.work.conv + index * r.channels + range.begin;
    args.n_channels = range.n;
    context.model.kernels().conv1d(args);
}

// l2 norms of queries and keys of some key heads; values stay as the convolution leaves them.
void normalise_keys(const Recurrent& r, int32_t index, int64_t head, int64_t n_heads) {
    const int64_t dk = r.context.model.config().key_dim;
    kernels::NormArgs norm;
    norm.x = norm.y = r.context.work.conv + index * r.channels + head * dk;
    norm.x_stride = norm.y_stride = dk;
    norm.n = dk;
    norm.n_rows = n_heads;
    norm.eps = 1e-6f;  // fixed in the reference, not the model's rms eps
    norm.scale = 1.0f / std::sqrt(static_cast<float>(dk));
    r.context.model.kernels().l2norm(norm);
    norm.x = norm.y = norm.y + r.key_channels;
    norm.scale = 1.0f;
    r.context.model.kernels().l2norm(norm);
}

// Decay and beta of value heads [head, head + n_heads) of rows [begin, end).
void run_gates(const Recurrent& r, int64_t begin, int64_t end, Channels heads) {
    const ModelConfig& config = r.context.model.config();
    Workspace& w = r.context.work;
    kernels::DeltaGatesArgs args;
    args.b = w.projected + begin * r.in_width() + r.channels + config.value_width() + heads.begin;
    args.a = args.b + config.n_value_heads;
    args.in_stride = r.in_width();
    args.neg_exp_a_log = r.weights.neg_exp_a_log.data() + heads.begin;
    args.dt_bias = r.weights.dt_bias.data() + heads.begin;
    args.decay = w.decay + begin * config.n_value_heads + heads.begin;
    args.beta = w.beta + begin * config.n_value_heads + heads.begin;
    args.out_stride = config.n_value_heads;
    args.n_rows = end - begin;
    args.n_heads = heads.n;
    r.context.model.kernels().delta_gates(args);
}

void copy_floats(float* to, const float* from, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// Keeps some channels and gates of a draft node for replay.
void record_channels(const Recurrent& r, int32_t index, Channels range) {
    const int64_t tree_row = r.context.pass.rows()[static_cast<size_t>(index)].tree_row;
    if (tree_row < 0) return;
    Workspace& w = r.context.work;
    copy_floats(w.journal_raw(r.layer) + tree_row * r.channels + range.begin, w.projected + index * r.in_width() + range.begin,
                range.n);
    copy_floats(w.journal_conv(r.layer) + tree_row * r.channels + range.begin, w.conv + index * r.channels + range.begin,
                range.n);
}
void record_gates(const Recurrent& r, int32_t index, Channels heads) {
    const int64_t tree_row = r.context.pass.rows()[static_cast<size_t>(index)].tree_row;
    if (tree_row < 0) return;
    Workspace& w = r.context.work;
    const int64_t n_heads = r.context.model.config().n_value_heads;
    copy_floats(w.journal_decay(r.layer) + tree_row * n_heads + heads.begin, w.decay + index * n_heads + heads.begin, heads.n);
    copy_floats(w.journal_beta(r.layer) + tree_row * n_heads + heads.begin, w.beta + index * n_heads + heads.begin, heads.n);
}

// Conv columns after n further inputs, the i-th of them at input_at(i); fewer than three inputs keep some of the old columns.
// Some channels of them; input_at points at the first.
template <class InputAt>
void advance_conv_columns(int64_t channels, Channels range, const float* from, float* to, int64_t n, const InputAt& input_at) {
    for (int64_t column = 0; column < cache::kConvColumns; ++column) {
        const int64_t i = n - cache::kConvColumns + column;
        const float* source = i >= 0 ? input_at(i) : from + (cache::kConvColumns + i) * channels + range.begin;
        copy_floats(to + column * channels + range.begin, source, range.n);
    }
}

// The raw inputs of the spine become the conv columns of the working state.
void record_conv_columns(const Recurrent& r, size_t s, Channels range) {
    const LayerContext& context = r.context;
    const PassSegment& segment = context.pass.segments()[s];
    advance_conv_columns(r.channels, range, context.memory.conv(segment.sequence->state(), r.layer),
                         context.memory.conv(context.working_states[s], r.layer), segment.spine, [&](int64_t i) {
                             return context.work.projected + (segment.row_begin + i) * r.in_width() + range.begin;
                         });
}

// Column blocks of all value heads: the independent pieces of the delta rule.
int64_t blocks_per_head(const ModelConfig& config) {
    return (config.value_dim + kernels::kDeltaColumns - 1) / kernels::kDeltaColumns;
}

// Arguments of one block over rows `row` onwards of work.conv, decay and beta, from one state slot into another: shared by the
// pass and by replay, so that both do the same arithmetic. Nodes and outputs are the caller's.
kernels::DeltaArgs delta_args(const LayerContext& context, int32_t layer, int64_t block, int64_t row, int32_t from, int32_t to) {
    const ModelConfig& config = context.model.config();
    const int64_t head = block / blocks_per_head(config);
    const int64_t column = block % blocks_per_head(config) * kernels::kDeltaColumns;
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

// Nodes [begin, end) of a segment, which lie in its spine or reach from it to the last node, through one column block.
struct DeltaTask {
    size_t segment;
    int64_t block;
    int64_t begin;
    int64_t end;
    int worker;
};
void run_delta(const Recurrent& r, const DeltaTask& task) {
    const LayerContext& context = r.context;
    const ModelConfig& config = context.model.config();
    const PassSegment& segment = context.pass.segments()[task.segment];
    const int64_t row = segment.row_begin + task.begin;
    const int32_t to = context.working_states[task.segment];
    const int32_t from = task.begin == 0 ? segment.sequence->state() : to;
    kernels::DeltaArgs args = delta_args(context, r.layer, task.block, row, from, to);
    args.parents = context.pass.parents().data() + row;
    args.continues = context.pass.continues().data() + row;
    args.first_node = task.begin;
    args.n_nodes = task.end - task.begin;
    args.spine = std::min<int64_t>(segment.spine, task.end) - task.begin;
    args.out = context.work.mixed + row * config.value_width() + task.block / blocks_per_head(config) * config.value_dim +
               task.block % blocks_per_head(config) * kernels::kDeltaColumns;
    args.out_stride = config.value_width();
    args.scratch = context.work.delta_scratch(task.worker);
    context.model.kernels().delta(args);
}

// Gated norm of value heads of one row, and their conversion for the second matrix if `inner` is given.
void run_norm(const Recurrent& r, int64_t index, Channels heads, const kernels::MatmulRows* inner) {
    const ModelConfig& config = r.context.model.config();
    Workspace& w = r.context.work;
    const int64_t dv = config.value_dim;
    kernels::NormArgs args;
    args.x = args.y = w.mixed + index * config.value_width() + heads.begin * dv;
    args.x_stride = args.y_stride = args.z_stride = dv;
    args.z = w.projected + index * r.in_width() + r.channels + heads.begin * dv;
    args.weight = r.weights.norm.data();
    args.n_rows = heads.n;
    args.n = dv;
    args.eps = config.rms_eps;
    r.context.model.kernels().gated_rmsnorm(args);
    if (inner != nullptr) r.weights.out.prepare(*inner, {index, index + 1, heads.begin * dv, (heads.begin + heads.n) * dv});
}

// Everything between the two matrices for one key head of one segment.
void run_key_head(const Recurrent& r, size_t s, int64_t key_head, const kernels::MatmulRows* inner, int worker) {
    const ModelConfig& config = r.context.model.config();
    const PassSegment& segment = r.context.pass.segments()[s];
    const int64_t dk = config.key_dim;
    const Channels heads{key_head * r.heads_per_key, r.heads_per_key};
    const Channels ranges[] = {{key_head * dk, dk},
                               {r.key_channels + key_head * dk, dk},
                               {2 * r.key_channels + heads.begin * config.value_dim, heads.n * config.value_dim}};
    const int64_t blocks = blocks_per_head(config);
    for (int64_t begin = 0; begin < segment.n_nodes;) {
        // Draft nodes start from the end of the spine, so they go with its last chunk.
        const int64_t end = begin + kChunkRows < segment.spine ? begin + kChunkRows : segment.n_nodes;
        for (int64_t node = begin; node < end; ++node) {
            const auto index = static_cast<int32_t>(segment.row_begin + node);
            for (const Channels& range : ranges) convolve(r, index, range);
            normalise_keys(r, index, key_head, 1);
            for (const Channels& range : ranges) record_channels(r, index, range);
        }
        run_gates(r, segment.row_begin + begin, segment.row_begin + end, heads);
        for (int64_t node = begin; node < end; ++node) record_gates(r, static_cast<int32_t>(segment.row_begin + node), heads);
        for (int64_t block = heads.begin * blocks; block < (heads.begin + heads.n) * blocks; ++block) {
            run_delta(r, {s, block, begin, end, worker});
        }
        for (int64_t node = begin; node < end; ++node) run_norm(r, segment.row_begin + node, heads, inner);
        begin = end;
    }
    for (const Channels& range : ranges) record_conv_columns(r, s, range);
}

// The same in three regions, for many threads.
void run_wide(const Recurrent& r, const kernels::MatmulRows& inner) {
    const LayerContext& context = r.context;
    const ModelConfig& config = context.model.config();
    const Channels all_channels{0, r.channels};
    const Channels all_heads{0, config.n_value_heads};
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t index = begin; index < end; ++index) {
            convolve(r, index, all_channels);
            normalise_keys(r, index, 0, config.n_key_heads);
            record_channels(r, index, all_channels);
        }
        run_gates(r, begin, end, all_heads);
        for (int32_t index = begin; index < end; ++index) record_gates(r, index, all_heads);
    });
    const int64_t n_blocks = config.n_value_heads * blocks_per_head(config);
    const auto n_segments = static_cast<int64_t>(context.pass.segments().size());
    context.pool.run(n_segments * n_blocks, [&](int64_t task, int worker) {
        const auto s = static_cast<size_t>(task / n_blocks);
        run_delta(r, {s, task % n_blocks, 0, context.pass.segments()[s].n_nodes, worker});
        if (task % n_blocks == 0) record_conv_columns(r, s, all_channels);
    });
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t index = begin; index < end; ++index) run_norm(r, index, all_heads, nullptr);
        r.weights.out.prepare_rows(inner, begin, end);
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
        copy_floats(w.conv + to * channels, w.journal_conv(layer) + from * channels, channels);
        copy_floats(w.decay + to * heads, w.journal_decay(layer) + from * heads, heads);
        copy_floats(w.beta + to * heads, w.journal_beta(layer) + from * heads, heads);
    }
}

}  // namespace

void run_recurrent(const LayerContext& context, const LayerWeights& layer) {
    const ModelConfig& config = context.model.config();
    const Recurrent r(context, layer);
    Workspace& w = context.work;
    norm_rows_into(context, layer.input_norm, r.weights.in);
    mark(context, Work::norm);
    observe(context, ActivationSite::mixer_in, w.normed, config.hidden, config.hidden);
    r.weights.in.multiply(outer_rows(context, r.weights.in), context.pool);
    mark(context, Work::mixer_in);
    const kernels::MatmulRows inner = inner_rows(context, r.weights.out);
    const auto n_segments = static_cast<int64_t>(context.pass.segments().size());
    if (n_segments * config.n_key_heads >= context.pool.n_threads()) {
        const int64_t columns = r.weights.out.input_columns();
        const bool is_apart = columns > 0 && r.heads_per_key * config.value_dim % columns == 0;
        context.pool.run(n_segments * config.n_key_heads, [&](int64_t task, int worker) {
            run_key_head(r, static_cast<size_t>(task / config.n_key_heads), task % config.n_key_heads,
                         is_apart ? &inner : nullptr, worker);
        });
        if (!is_apart) prepare_rows(context, r.weights.out, inner);
    } else {
        run_wide(r, inner);
    }
    mark(context, Work::recurrence);
    observe(context, ActivationSite::mixer_out, w.mixed, config.value_width(), config.value_width());
    r.weights.out.multiply(inner, context.pool);
    mark(context, Work::mixer_out);
}

void replay_recurrent(const LayerContext& context, std::span<const int32_t> tree_rows, int32_t from, int32_t to) {
    const ModelConfig& config = context.model.config();
    const int64_t channels = config.conv_channels();
    const auto n = static_cast<int64_t>(tree_rows.size());
    for (int32_t layer = 0; layer < context.model.state_shape().n_recurrent_layers; ++layer) {
        gather_journal(context, layer, tree_rows);
        const float* raw = context.work.journal_raw(layer);
        advance_conv_columns(channels, {0, channels}, context.memory.conv(from, layer), context.memory.conv(to, layer), n,
                             [&](int64_t i) { return raw + tree_rows[static_cast<size_t>(i)] * channels; });
        context.pool.run(config.n_value_heads * blocks_per_head(config), [&](int64_t block, int worker) {
            kernels::DeltaArgs args = delta_args(context, layer, block, 0, from, to);
            args.n_nodes = n;
            args.spine = n;
            args.scratch = context.work.delta_scratch(worker);
            context.model.kernels().delta(args);
        });
    }
}

}  // namespace espalier::model
