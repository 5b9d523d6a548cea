// Gated DeltaNet: short causal convolution, l2-normed keys and queries, the
// gated delta rule, gated norm.
//
// One recurrence only (law 1): the spine runs token by token from the committed
// state into a fresh state slot; draft nodes run from there in scratch, each
// from its parent's state. For draft nodes the raw convolution inputs and the
// normed keys, values and gates are kept, so that commit can replay the
// accepted path with the same arithmetic.
//
// A key head with the value heads that read it is the unit of work, from the
// convolution to the inputs of the second matrix: one region of the pool, and
// what a head's rows become on the way stays in L2. With more threads than key
// heads, rows and then column blocks of the states are the units instead, in
// three regions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/layers/layers.h"

namespace espalier::model {
namespace {

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

struct Range {
    int64_t begin;
    int64_t n;
};

// Rows of some heads between the two matrices: queries, keys and values side by
// side, gates, and what comes out.
struct HeadRows {
    float* conv;  // row 0 of the segment or chunk
    int64_t conv_stride;
    float* decay;
    float* beta;
    int64_t gate_stride;
    float* out;
    int64_t out_stride;
};

// Convolution and SiLU of some channels of one row.
void convolve(const Recurrent& r, int32_t index, Range channels, float* y) {
    const LayerContext& context = r.context;
    const PassRow& row = context.pass.rows()[static_cast<size_t>(index)];
    const PassSegment& segment = context.pass.segments()[static_cast<size_t>(row.segment)];
    const float* committed = context.memory.conv(segment.sequence->state(), r.layer) + channels.begin;
    kernels::Conv1dArgs args;
    int32_t column = cache::kConvColumns;
    int32_t at = index;
    for (int tap = 3; tap >= 0; --tap) {
        if (at >= 0) {
            args.x[tap] = context.work.projected + at * r.in_width() + channels.begin;
            at = context.pass.rows()[static_cast<size_t>(at)].parent_row;
        } else {
            args.x[tap] = committed + --column * r.channels;
        }
    }
    args.weight = r.weights.conv.data() + channels.begin;
    args.weight_stride = r.channels;
    args.y = y;
    args.n_channels = channels.n;
    context.model.kernels().conv1d(args);
}

// l2 norms of queries and of keys of n_heads key heads; values stay as the
// convolution leaves them.
void normalise_keys(const Recurrent& r, float* q, float* k, int64_t n_heads) {
    const int64_t dk = r.context.model.config().key_dim;
    kernels::NormArgs norm;
    norm.x = norm.y = q;
    norm.x_stride = norm.y_stride = dk;
    norm.n = dk;
    norm.n_rows = n_heads;
    norm.eps = 1e-6f;  // fixed in the reference, not the model's rms eps
    norm.scale = 1.0f / std::sqrt(static_cast<float>(dk));
    r.context.model.kernels().l2norm(norm);
    norm.x = norm.y = k;
    norm.scale = 1.0f;
    r.context.model.kernels().l2norm(norm);
}

// Decay and beta of some value heads of pass rows [begin, end), into rows'
// gates from its row 0 on.
void run_gates(const Recurrent& r, int64_t begin, int64_t end, Range heads, const HeadRows& rows) {
    const ModelConfig& config = r.context.model.config();
    kernels::DeltaGatesArgs args;
    args.b = r.context.work.projected + begin * r.in_width() + r.channels + config.value_width() + heads.begin;
    args.a = args.b + config.n_value_heads;
    args.in_stride = r.in_width();
    args.neg_exp_a_log = r.weights.neg_exp_a_log.data() + heads.begin;
    args.dt_bias = r.weights.dt_bias.data() + heads.begin;
    args.decay = rows.decay;
    args.beta = rows.beta;
    args.out_stride = rows.gate_stride;
    args.n_rows = end - begin;
    args.n_heads = heads.n;
    r.context.model.kernels().delta_gates(args);
}

void copy_floats(float* to, const float* from, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

// Keeps some channels of a draft node, before and after the convolution, for
// replay.
void record_channels(const Recurrent& r, int32_t index, Range channels, const float* convolved) {
    const int64_t tree_row = r.context.pass.rows()[static_cast<size_t>(index)].tree_row;
    if (tree_row < 0) return;
    Workspace& w = r.context.work;
    const int64_t to = tree_row * r.channels + channels.begin;
    copy_floats(w.journal_raw(r.layer) + to, w.projected + index * r.in_width() + channels.begin, channels.n);
    copy_floats(w.journal_conv(r.layer) + to, convolved, channels.n);
}
void record_gates(const Recurrent& r, int32_t index, Range heads, const float* decay, const float* beta) {
    const int64_t tree_row = r.context.pass.rows()[static_cast<size_t>(index)].tree_row;
    if (tree_row < 0) return;
    const int64_t to = tree_row * r.context.model.config().n_value_heads + heads.begin;
    copy_floats(r.context.work.journal_decay(r.layer) + to, decay, heads.n);
    copy_floats(r.context.work.journal_beta(r.layer) + to, beta, heads.n);
}

// Conv columns after n further inputs, the i-th of them at input_at(i); fewer
// than three inputs keep some of the old columns. Some channels of them;
// input_at points at the first.
template <class InputAt>
void advance_conv_columns(int64_t width, Range channels, const float* from, float* to, int64_t n, const InputAt& input_at) {
    for (int64_t column = 0; column < cache::kConvColumns; ++column) {
        const int64_t i = n - cache::kConvColumns + column;
        const float* source = i >= 0 ? input_at(i) : from + (cache::kConvColumns + i) * width + channels.begin;
        copy_floats(to + column * width + channels.begin, source, channels.n);
    }
}

// The raw inputs of the spine become the conv columns of the working state.
void record_conv_columns(const Recurrent& r, size_t s, Range channels) {
    const LayerContext& context = r.context;
    const PassSegment& segment = context.pass.segments()[s];
    advance_conv_columns(r.channels, channels, context.memory.conv(segment.sequence->state(), r.layer),
                         context.memory.conv(context.working_states[s], r.layer), segment.spine, [&](int64_t i) {
                             return context.work.projected + (segment.row_begin + i) * r.in_width() + channels.begin;
                         });
}

// Column blocks of all value heads: the independent pieces of the delta rule.
int64_t blocks_per_head(const ModelConfig& config) {
    return (config.value_dim + kernels::kDeltaColumns - 1) / kernels::kDeltaColumns;
}

// One column block of one value head.
struct Block {
    int64_t head;
    int64_t column;
    int64_t n_columns;
};
Block block_at(const ModelConfig& config, int64_t index) {
    const int64_t column = index % blocks_per_head(config) * kernels::kDeltaColumns;
    return {index / blocks_per_head(config), column, std::min<int64_t>(kernels::kDeltaColumns, config.value_dim - column)};
}

// What depends on the block and the states only. The rows are the caller's.
kernels::DeltaArgs delta_args(const LayerContext& context, int32_t layer, const Block& block, int32_t from, int32_t to) {
    const ModelConfig& config = context.model.config();
    const int64_t offset = block.head * config.key_dim * config.value_dim + block.column;
    kernels::DeltaArgs args;
    args.dk = config.key_dim;
    args.n_columns = block.n_columns;
    args.state_in = context.memory.recurrent(from, layer) + offset;
    args.state_out = context.memory.recurrent(to, layer) + offset;
    args.state_stride = config.value_dim;
    return args;
}

// Rows of a segment that lie in its spine, or reach from it to the last node.
struct Chunk {
    size_t segment;
    int64_t begin;
    int64_t end;
};

// Nodes of a chunk through one block. q, k, v of the block's head, and its
// gates and output, in row 0 of the chunk.
void run_delta(const Recurrent& r, const Chunk& chunk, const Block& block, kernels::DeltaArgs args, int worker) {
    const LayerContext& context = r.context;
    const PassSegment& segment = context.pass.segments()[chunk.segment];
    args.parents = context.pass.parents().data() + segment.row_begin + chunk.begin;
    args.continues = context.pass.continues().data() + segment.row_begin + chunk.begin;
    args.first_node = chunk.begin;
    args.n_nodes = chunk.end - chunk.begin;
    args.spine = std::min<int64_t>(segment.spine, chunk.end) - chunk.begin;
    args.scratch = context.work.delta_scratch(worker);
    // What the worker does next, most likely: a state is read in order of blocks,
    // its rows are far apart.
    const bool is_last = block.column + block.n_columns == context.model.config().value_dim;
    const int64_t next = is_last ? args.dk * args.state_stride - block.column : block.n_columns;
    const bool has_next = !is_last || block.head + 1 < context.model.config().n_value_heads;
    if (has_next && chunk.begin == 0) args.state_next = args.state_in + next;
    if (chunk.end == segment.n_nodes) args.store = kernels::StateStore::streamed;
    context.model.kernels().delta(args);
}
kernels::DeltaArgs chunk_args(const Recurrent& r, const Chunk& chunk, const Block& block) {
    const PassSegment& segment = r.context.pass.segments()[chunk.segment];
    const int32_t to = r.context.working_states[chunk.segment];
    return delta_args(r.context, r.layer, block, chunk.begin == 0 ? segment.sequence->state() : to, to);
}

// Gated norm of some value heads of one row, and their conversion for the
// second matrix if `inner` is given. x: the heads' outputs.
void run_norm(const Recurrent& r, int64_t index, Range heads, float* x, const kernels::MatmulRows* inner) {
    const ModelConfig& config = r.context.model.config();
    const int64_t dv = config.value_dim;
    kernels::NormArgs args;
    args.x = args.y = x;
    args.x_stride = args.y_stride = args.z_stride = dv;
    args.z = r.context.work.projected + index * r.in_width() + r.channels + heads.begin * dv;
    args.weight = r.weights.norm.data();
    args.n_rows = heads.n;
    args.n = dv;
    args.eps = config.rms_eps;
    r.context.model.kernels().gated_rmsnorm(args);
    if (inner == nullptr) return;
    kernels::MatmulRows rows = *inner;
    rows.x = x - heads.begin * dv - index * rows.x_stride;  // so that row `index` and the heads' columns are at x
    r.weights.out.prepare(rows, {index, index + 1, heads.begin * dv, (heads.begin + heads.n) * dv});
}

// Everything between the two matrices for one key head of one segment: from the
// convolution to the rows that the second matrix reads. Long chunks of rows
// pass in pieces that stay in L2.
class KeyHead {
public:
    KeyHead(const Recurrent& recurrent, size_t segment, int64_t key_head, int worker)
        : r_(recurrent), config_(recurrent.context.model.config()), segment_(segment), worker_(worker) {
        const int64_t dk = config_.key_dim;
        heads_ = {key_head * r_.heads_per_key, r_.heads_per_key};
        ranges_[0] = {key_head * dk, dk};
        ranges_[1] = {r_.key_channels + key_head * dk, dk};
        ranges_[2] = {2 * r_.key_channels + heads_.begin * config_.value_dim, heads_.n * config_.value_dim};
        const int64_t width = 2 * dk + ranges_[2].n;
        const int64_t rows = Workspace::head_rows_max(r_.context.pass.limits());
        float* scratch = r_.context.work.head_scratch(worker);
        rows_ = {scratch,
                 width,
                 scratch + rows * width,
                 scratch + rows * (width + heads_.n),
                 heads_.n,
                 scratch + rows * (width + 2 * heads_.n),
                 ranges_[2].n};
    }

    // inner: null if heads cannot be converted apart. Outputs go to work.mixed if anybody reads them there.
    void run(const kernels::MatmulRows* inner) {
        const PassSegment& segment = r_.context.pass.segments()[segment_];
        for (int64_t begin = 0; begin < segment.n_nodes;) {
            // Draft nodes start from the end of the spine, so they go with its last
            // piece.
            const int64_t end = begin + kHeadRows < segment.spine ? begin + kHeadRows : segment.n_nodes;
            run_chunk({segment_, begin, end}, inner);
            begin = end;
        }
        for (const Range& range : ranges_) record_conv_columns(r_, segment_, range);
    }

private:
    void run_chunk(const Chunk& chunk, const kernels::MatmulRows* inner) {
        const int64_t first = r_.context.pass.segments()[segment_].row_begin + chunk.begin;
        const int64_t n = chunk.end - chunk.begin;
        for (int64_t i = 0; i < n; ++i) prepare_row(static_cast<int32_t>(first + i), rows_.conv + i * rows_.conv_stride);
        run_gates(r_, first, first + n, heads_, rows_);
        for (int64_t i = 0; i < n; ++i) {
            record_gates(r_, static_cast<int32_t>(first + i), heads_, rows_.decay + i * rows_.gate_stride,
                         rows_.beta + i * rows_.gate_stride);
        }
        for (int64_t index = heads_.begin * blocks_per_head(config_);
             index < (heads_.begin + heads_.n) * blocks_per_head(config_); ++index) {
            run_block(chunk, block_at(config_, index));
        }
        for (int64_t i = 0; i < n; ++i) {
            float* out = rows_.out + i * rows_.out_stride;
            run_norm(r_, first + i, heads_, out, inner);
            if (inner != nullptr && r_.context.observer == nullptr && !r_.weights.out.reads_floats()) continue;
            copy_floats(r_.context.work.mixed + (first + i) * config_.value_width() + heads_.begin * config_.value_dim, out,
                        rows_.out_stride);
        }
    }

    void prepare_row(int32_t index, float* conv) {
        float* at = conv;
        for (const Range& range : ranges_) {
            convolve(r_, index, range, at);
            at += range.n;
        }
        normalise_keys(r_, conv, conv + config_.key_dim, 1);
        at = conv;
        for (const Range& range : ranges_) {
            record_channels(r_, index, range, at);
            at += range.n;
        }
    }

    void run_block(const Chunk& chunk, const Block& block) {
        kernels::DeltaArgs args = chunk_args(r_, chunk, block);
        const int64_t head = block.head - heads_.begin;
        args.q = rows_.conv;
        args.k = rows_.conv + config_.key_dim;
        args.qk_stride = args.v_stride = rows_.conv_stride;
        args.v = rows_.conv + 2 * config_.key_dim + head * config_.value_dim + block.column;
        args.decay = rows_.decay + head;
        args.beta = rows_.beta + head;
        args.gate_stride = rows_.gate_stride;
        args.out = rows_.out + head * config_.value_dim + block.column;
        args.out_stride = rows_.out_stride;
        run_delta(r_, chunk, block, args, worker_);
    }

    const Recurrent& r_;
    const ModelConfig& config_;
    size_t segment_;
    int worker_;
    Range heads_;
    Range ranges_[3];  // channels: query, key, values
    HeadRows rows_;
};

// One block over rows of work.conv, decay and beta from `row` on.
void set_work_rows(const LayerContext& context, const Block& block, int64_t row, kernels::DeltaArgs& args) {
    const ModelConfig& config = context.model.config();
    const int64_t channels = config.conv_channels();
    const float* conv = context.work.conv + row * channels;
    args.q = conv + block.head / (config.n_value_heads / config.n_key_heads) * config.key_dim;
    args.k = args.q + config.n_key_heads * config.key_dim;
    args.qk_stride = args.v_stride = channels;
    args.v = conv + 2 * config.n_key_heads * config.key_dim + block.head * config.value_dim + block.column;
    args.decay = context.work.decay + row * config.n_value_heads + block.head;
    args.beta = context.work.beta + row * config.n_value_heads + block.head;
    args.gate_stride = config.n_value_heads;
}

// All heads in three regions, for more threads than key heads.
void run_wide(const Recurrent& r, const kernels::MatmulRows& inner) {
    const LayerContext& context = r.context;
    const ModelConfig& config = context.model.config();
    Workspace& w = context.work;
    const Range all_channels{0, r.channels};
    const Range all_heads{0, config.n_value_heads};
    const int64_t n_heads = config.n_value_heads;
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t index = begin; index < end; ++index) {
            float* conv = w.conv + index * r.channels;
            convolve(r, index, all_channels, conv);
            normalise_keys(r, conv, conv + r.key_channels, config.n_key_heads);
            record_channels(r, index, all_channels, conv);
        }
        run_gates(r, begin, end, all_heads,
                  {nullptr, 0, w.decay + begin * n_heads, w.beta + begin * n_heads, n_heads, nullptr, 0});
        for (int32_t index = begin; index < end; ++index) {
            record_gates(r, index, all_heads, w.decay + index * n_heads, w.beta + index * n_heads);
        }
    });
    const int64_t n_blocks = n_heads * blocks_per_head(config);
    const auto n_segments = static_cast<int64_t>(context.pass.segments().size());
    context.pool.run(n_segments * n_blocks, [&](int64_t task, int worker) {
        const auto s = static_cast<size_t>(task / n_blocks);
        const PassSegment& segment = context.pass.segments()[s];
        const Chunk chunk{s, 0, segment.n_nodes};
        const Block block = block_at(config, task % n_blocks);
        kernels::DeltaArgs args = chunk_args(r, chunk, block);
        set_work_rows(context, block, segment.row_begin, args);
        args.out = w.mixed + segment.row_begin * config.value_width() + block.head * config.value_dim + block.column;
        args.out_stride = config.value_width();
        run_delta(r, chunk, block, args, worker);
        if (task % n_blocks == 0) record_conv_columns(r, s, all_channels);
    });
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t index = begin; index < end; ++index)
            run_norm(r, index, all_heads, w.mixed + index * config.value_width(), nullptr);
        r.weights.out.prepare_rows(inner, begin, end);
    });
}

// Brings a path's journal rows into consecutive rows of work.conv, decay and
// beta, which are free between passes.
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
            KeyHead head(r, static_cast<size_t>(task / config.n_key_heads), task % config.n_key_heads, worker);
            head.run(is_apart ? &inner : nullptr);
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
        context.pool.run(config.n_value_heads * blocks_per_head(config), [&](int64_t index, int worker) {
            const Block block = block_at(config, index);
            kernels::DeltaArgs args = delta_args(context, layer, block, from, to);
            set_work_rows(context, block, 0, args);
            args.n_nodes = n;
            args.spine = n;
            args.scratch = context.work.delta_scratch(worker);
            context.model.kernels().delta(args);
        });
    }
}

}  // namespace espalier::model
