// Gated softmax attention over paged keys and values plus the pass' own rows.
//
// Keys are read in blocks of 64 absolute positions. Blocks that are complete in committed pages are read in place. The rest, the
// *tail*, is gathered: complete blocks of the spine once per segment, and for every group (spine end, or one leaf's path) its
// last one or two blocks, each key in the lane of its position, unused lanes zero. So a row sums over the same lanes in the same
// order whether its keys were committed, came in the same chunk, or are drafts on its path: same bits.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "model/layers/layers.h"

namespace espalier::model {
namespace {

constexpr int32_t kBlock = cache::kPageTokens;
// A group's own blocks: the spine's incomplete one and what up to 64 path nodes add.
constexpr int32_t kGroupBlocks = 2;

// Where gathered blocks of a segment and its groups lie in work.tail_blocks.
class TailMap {
public:
    explicit TailMap(const LayerContext& context) : context_(context) {}

    static int32_t first_block(const PassSegment& s) { return s.base / kBlock; }
    static int32_t first_group_block(const PassSegment& s) { return (s.base + s.spine) / kBlock; }

    // Index of the first spine block of a segment.
    int64_t spine_slot(int32_t segment) const {
        int64_t slot = 0;
        for (int32_t s = 0; s < segment; ++s) slot += n_spine_blocks(s);
        return slot;
    }
    int64_t group_slot(int32_t group) const {
        return spine_slot(static_cast<int32_t>(context_.pass.segments().size())) + static_cast<int64_t>(group) * kGroupBlocks;
    }
    int32_t n_spine_blocks(int32_t segment) const {
        const PassSegment& s = context_.pass.segments()[static_cast<size_t>(segment)];
        return first_group_block(s) - first_block(s);
    }
    std::byte* k(int64_t slot, int32_t head) const {
        const size_t block = context_.memory.shape().block_bytes();
        const auto heads = static_cast<int64_t>(context_.memory.shape().n_kv_heads);
        return context_.work.tail_blocks + static_cast<size_t>((slot * heads + head) * 2) * block;
    }
    std::byte* v(int64_t slot, int32_t head) const { return k(slot, head) + context_.memory.shape().block_bytes(); }

private:
    const LayerContext& context_;
};

struct GatherTask {
    const LayerContext& context;
    int32_t kv_layer;
    int32_t head;
};

// Fills one gathered block: committed lanes below base from the sequence's page, then spine rows, then path rows, then zeros.
void fill_block(const GatherTask& t, const PassSegment& segment, std::span<const int32_t> path, int32_t block, std::byte* k,
                std::byte* v) {
    const cache::StateShape& shape = t.context.memory.shape();
    const size_t element = shape.kv_element_bytes();
    const size_t row_bytes = static_cast<size_t>(shape.head_dim) * element;
    const size_t kv_row_bytes = row_bytes * static_cast<size_t>(shape.n_kv_heads);
    const int32_t block_begin = block * kBlock;
    const int32_t n_committed = std::clamp(segment.base - block_begin, 0, kBlock);
    std::memset(k, 0, shape.block_bytes());
    std::memset(v, 0, shape.block_bytes());
    if (n_committed > 0) {
        const int32_t page = segment.sequence->page(block);
        const std::byte* page_k = t.context.memory.k_block(page, t.kv_layer, t.head);
        for (int32_t d = 0; d < shape.head_dim; ++d) {
            const size_t line = static_cast<size_t>(d) * kBlock * element;
            std::memcpy(k + line, page_k + line, static_cast<size_t>(n_committed) * element);
        }
        std::memcpy(v, t.context.memory.v_block(page, t.kv_layer, t.head), static_cast<size_t>(n_committed) * row_bytes);
    }
    const int32_t end = segment.base + segment.spine + static_cast<int32_t>(path.size());
    for (int32_t lane = n_committed; lane < kBlock && block_begin + lane < end; ++lane) {
        const int32_t node = block_begin + lane - segment.base;
        const int32_t row = node < segment.spine ? segment.row_begin + node : path[static_cast<size_t>(node - segment.spine)];
        const size_t offset = static_cast<size_t>(row) * kv_row_bytes + static_cast<size_t>(t.head) * row_bytes;
        t.context.model.kernels().k_place({shape.kv, t.context.work.k_rows(t.kv_layer) + offset, k, lane, shape.head_dim});
        std::memcpy(v + static_cast<size_t>(lane) * row_bytes, t.context.work.v_rows(t.kv_layer) + offset, row_bytes);
    }
}

void gather_tails(const LayerContext& context, int32_t kv_layer) {
    const Pass& pass = context.pass;
    const TailMap map(context);
    const auto n_segments = static_cast<int64_t>(pass.segments().size());
    const auto n_groups = static_cast<int64_t>(pass.groups().size());
    const int64_t heads = context.memory.shape().n_kv_heads;
    context.pool.run((n_segments + n_groups) * heads, [&](int64_t task, int) {
        const GatherTask t{context, kv_layer, static_cast<int32_t>(task % heads)};
        const auto index = static_cast<int32_t>(task / heads);
        if (index < n_segments) {
            const PassSegment& segment = pass.segments()[static_cast<size_t>(index)];
            for (int32_t i = 0; i < map.n_spine_blocks(index); ++i) {
                const int64_t slot = map.spine_slot(index) + i;
                fill_block(t, segment, {}, TailMap::first_block(segment) + i, map.k(slot, t.head), map.v(slot, t.head));
            }
            return;
        }
        const auto group_index = static_cast<int32_t>(index - n_segments);
        const PassGroup& group = pass.groups()[static_cast<size_t>(group_index)];
        const PassSegment& segment = pass.segments()[static_cast<size_t>(group.segment)];
        const auto path = pass.path_rows().subspan(static_cast<size_t>(group.path_begin),
                                                   static_cast<size_t>(group.path_end - group.path_begin));
        const int32_t end = segment.base + segment.spine + static_cast<int32_t>(path.size());
        const int32_t first = TailMap::first_group_block(segment);
        for (int32_t block = first; block * kBlock < end; ++block) {
            const int64_t slot = map.group_slot(group_index) + block - first;
            fill_block(t, segment, path, block, map.k(slot, t.head), map.v(slot, t.head));
        }
    });
}

// Norms, rotates and stores queries, keys and values of the new rows. The softmax scale and the key scale are in q_norm's weight.
void project_rows(const LayerContext& context, const AttentionWeights& weights, int32_t kv_layer) {
    const ModelConfig& config = context.model.config();
    const kernels::KernelTable& k = context.model.kernels();
    const cache::StateShape& shape = context.memory.shape();
    Workspace& w = context.work;
    const int64_t width = weights.qkv.width();
    const int64_t hd = config.head_dim;
    const int64_t group_heads = config.n_heads / config.n_kv_heads;
    const int64_t n_order = static_cast<int64_t>(context.pass.order().size());
    const int64_t pairs = config.rotary_dim / 2;
    const int64_t task_rows = rows_per_task(static_cast<int32_t>(n_order), context.pool.n_threads());
    context.pool.run((n_order + task_rows - 1) / task_rows, [&](int64_t task, int) {
        for (int64_t i = task * task_rows; i < std::min((task + 1) * task_rows, n_order); ++i) {
            const int32_t row = context.pass.order()[static_cast<size_t>(i)];
            float* projected = w.projected + row * width;
            kernels::NormArgs norm;
            norm.n = hd;
            norm.eps = config.rms_eps;
            norm.x_stride = 2 * hd;  // query and gate alternate
            norm.weight = weights.q_norm.data();
            norm.y_stride = hd;
            norm.n_rows = group_heads;
            for (int64_t kv_head = 0; kv_head < config.n_kv_heads; ++kv_head) {
                float* q = w.queries + (kv_head * n_order + i) * group_heads * hd;
                norm.x = projected + kv_head * group_heads * 2 * hd;
                norm.y = q;
                k.rmsnorm(norm);
                k.rope({q, group_heads, hd, w.cos + row * pairs, w.sin + row * pairs, pairs});
            }
            float* keys = projected + 2 * config.q_width();
            norm.x = keys;
            norm.y = keys;
            norm.x_stride = norm.y_stride = hd;
            norm.weight = weights.k_norm.data();
            norm.n_rows = config.n_kv_heads;
            k.rmsnorm(norm);
            k.rope({keys, config.n_kv_heads, hd, w.cos + row * pairs, w.sin + row * pairs, pairs});
            const size_t offset = static_cast<size_t>(row * config.kv_width()) * shape.kv_element_bytes();
            k.kv_store({shape.kv, keys, 1.0f / weights.k_scale, w.k_rows(kv_layer) + offset, config.kv_width()});
            k.kv_store(
                {shape.kv, keys + config.kv_width(), 1.0f / weights.v_scale, w.v_rows(kv_layer) + offset, config.kv_width()});
            const int32_t position = context.pass.rows()[static_cast<size_t>(row)].position;
            std::fill_n(w.n_keys + i * group_heads, group_heads, position + 1);
        }
    });
}

// How heads' outputs get to the second matrix: converted by whoever computes them if columns can be converted apart.
bool converts_heads(const ModelConfig& config, const AttentionWeights& weights) {
    const int64_t columns = weights.o.input_columns();
    return columns > 0 && config.head_dim % columns == 0;
}

struct AttendTask {
    int32_t group;
    int32_t kv_head;
    int32_t order_begin;  // rows order[order_begin, order_end)
    int32_t order_end;
    int worker;
};

// Partitions of the key range one after another, then the merge and the output gate, for some rows of one group.
void attend(const LayerContext& context, const AttentionWeights& weights, int32_t kv_layer, const AttendTask& task) {
    const ModelConfig& config = context.model.config();
    const kernels::KernelTable& k = context.model.kernels();
    Workspace& w = context.work;
    const Pass& pass = context.pass;
    const PassGroup& group = pass.groups()[static_cast<size_t>(task.group)];
    const PassSegment& segment = pass.segments()[static_cast<size_t>(group.segment)];
    const TailMap map(context);
    const int64_t hd = config.head_dim;
    const int64_t group_heads = config.n_heads / config.n_kv_heads;
    const int64_t n_order = static_cast<int64_t>(pass.order().size());
    const int64_t n_rows = (task.order_end - task.order_begin) * group_heads;
    const int32_t* n_keys = w.n_keys + task.order_begin * group_heads;
    const int64_t n_blocks = (*std::max_element(n_keys, n_keys + n_rows) + kBlock - 1) / kBlock;
    const int64_t n_partitions = (n_blocks + kernels::kPartitionBlocks - 1) / kernels::kPartitionBlocks;
    const int64_t first_tail = TailMap::first_block(segment);
    const int64_t first_own = TailMap::first_group_block(segment);

    float* m = w.attention_scratch(task.worker);
    float* l = m + n_partitions * n_rows;
    float* acc = l + n_partitions * n_rows;
    kernels::AttentionArgs args;
    args.q = w.queries + (task.kv_head * n_order + task.order_begin) * group_heads * hd;
    args.q_stride = hd;
    args.n_keys = n_keys;
    args.n_rows = n_rows;
    args.head_dim = hd;
    args.kv = context.memory.shape().kv;
    for (int64_t partition = 0; partition < n_partitions; ++partition) {
        std::array<const void*, kernels::kPartitionBlocks> k_blocks{};
        std::array<const void*, kernels::kPartitionBlocks> v_blocks{};
        args.block_begin = partition * kernels::kPartitionBlocks;
        args.block_end = std::min(args.block_begin + kernels::kPartitionBlocks, n_blocks);
        for (int64_t block = args.block_begin; block < args.block_end; ++block) {
            const auto i = static_cast<size_t>(block - args.block_begin);
            if (block < first_tail) {
                const int32_t page = segment.sequence->page(static_cast<int32_t>(block));
                k_blocks[i] = context.memory.k_block(page, kv_layer, task.kv_head);
                v_blocks[i] = context.memory.v_block(page, kv_layer, task.kv_head);
            } else {
                const int64_t slot = block < first_own ? map.spine_slot(group.segment) + block - first_tail
                                                       : map.group_slot(task.group) + block - first_own;
                k_blocks[i] = map.k(slot, task.kv_head);
                v_blocks[i] = map.v(slot, task.kv_head);
            }
        }
        args.k_blocks = k_blocks.data();
        args.v_blocks = v_blocks.data();
        args.m = m + partition * n_rows;
        args.l = l + partition * n_rows;
        args.acc = acc + partition * n_rows * hd;
        k.attention(args);
    }
    const kernels::MatmulRows inner = inner_rows(context, weights.o);
    const int32_t first_new = pass.segments().front().first_new;
    constexpr int64_t kPartitionKeys = kernels::kPartitionBlocks * kBlock;
    for (int64_t r = 0; r < n_rows; ++r) {
        const int32_t row = pass.order()[static_cast<size_t>(task.order_begin + r / group_heads)];
        const int64_t head = task.kv_head * group_heads + r % group_heads;
        float* out = w.mixed + row * config.q_width() + head * hd;
        kernels::AttentionMergeArgs merge;
        merge.m = m + r;
        merge.l = l + r;
        merge.m_stride = n_rows;
        merge.acc = acc + r * hd;
        merge.acc_stride = n_rows * hd;
        merge.n_partitions = (n_keys[r] + kPartitionKeys - 1) / kPartitionKeys;
        merge.head_dim = hd;
        merge.v_scale = context.memory.shape().kv == kernels::KvType::fp8 ? weights.v_scale : 1.0f;
        merge.out = out;
        k.attention_merge(merge);
        k.sigmoid_gate({out, w.projected + row * weights.qkv.width() + head * 2 * hd + hd, hd});
        if (!converts_heads(config, weights)) continue;
        weights.o.prepare(inner, {row - first_new, row - first_new + 1, head * hd, (head + 1) * hd});
    }
}

void attend_all(const LayerContext& context, const AttentionWeights& weights, int32_t kv_layer) {
    const ModelConfig& config = context.model.config();
    const int32_t group_heads = config.n_heads / config.n_kv_heads;
    const int32_t task_rows = std::max(1, kAttentionTaskRows / group_heads);
    const auto groups = context.pass.groups();
    int64_t n_blocks = 0;  // row blocks of all groups
    for (const PassGroup& group : groups) n_blocks += (group.order_end - group.order_begin + task_rows - 1) / task_rows;
    context.pool.run(n_blocks * config.n_kv_heads, [&](int64_t index, int worker) {
        // Late rows see the most keys: start with them so that the last tasks are short.
        int64_t block = n_blocks - 1 - index / config.n_kv_heads;
        int32_t group = 0;
        for (;; ++group) {
            const PassGroup& g = groups[static_cast<size_t>(group)];
            const int64_t own = (g.order_end - g.order_begin + task_rows - 1) / task_rows;
            if (block < own) break;
            block -= own;
        }
        const PassGroup& g = groups[static_cast<size_t>(group)];
        const auto begin = static_cast<int32_t>(g.order_begin + block * task_rows);
        attend(context, weights, kv_layer,
               {group, static_cast<int32_t>(index % config.n_kv_heads), begin, std::min(begin + task_rows, g.order_end), worker});
    });
}

}  // namespace

void run_attention(const LayerContext& context, const LayerWeights& layer) {
    const ModelConfig& config = context.model.config();
    const AttentionWeights& weights = *layer.attention;
    Workspace& w = context.work;
    const int64_t hidden = config.hidden;
    norm_rows_into(context, layer.input_norm, weights.qkv);
    mark(context, Work::norm);
    observe(context, ActivationSite::mixer_in, w.normed, hidden, hidden);
    weights.qkv.multiply(outer_rows(context, weights.qkv), context.pool);
    mark(context, Work::mixer_in);
    project_rows(context, weights, layer.kv_index);
    const float* keys = w.projected + 2 * config.q_width();
    observe(context, ActivationSite::keys, keys, weights.qkv.width(), config.kv_width());
    observe(context, ActivationSite::values, keys + config.kv_width(), weights.qkv.width(), config.kv_width());
    gather_tails(context, layer.kv_index);
    attend_all(context, weights, layer.kv_index);
    const kernels::MatmulRows inner = inner_rows(context, weights.o);
    if (!converts_heads(config, weights)) prepare_rows(context, weights.o, inner);
    mark(context, Work::attention);
    observe(context, ActivationSite::mixer_out, w.mixed, config.q_width(), config.q_width());
    weights.o.multiply(inner, context.pool);
    mark(context, Work::mixer_out);
}

}  // namespace espalier::model
