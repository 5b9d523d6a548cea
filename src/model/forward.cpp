#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace espalier::model {
namespace {

// Longest chain of draft nodes below the spine: how far the sequence may grow if one path is accepted.
int32_t deepest_position(const Pass& pass, int32_t segment) {
    const PassSegment& s = pass.segments()[static_cast<size_t>(segment)];
    int32_t deepest = s.base + s.spine;
    for (int32_t node = s.spine; node < s.n_nodes; ++node) {
        deepest = std::max(deepest, pass.rows()[static_cast<size_t>(s.row_begin + node)].position + 1);
    }
    return deepest;
}

}  // namespace

void fill_rotation(const LayerContext& context) {
    const std::vector<float>& frequencies = context.model.inverse_frequencies();
    const auto pairs = static_cast<int32_t>(frequencies.size());
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t row = begin; row < end; ++row) {
            const auto position = static_cast<float>(context.pass.rows()[static_cast<size_t>(row)].position);
            for (int32_t i = 0; i < pairs; ++i) {
                // The reference multiplies in float: at large positions the product's rounding is part of the model.
                const float angle = position * frequencies[static_cast<size_t>(i)];
                context.work.cos[row * pairs + i] = std::cos(angle);
                context.work.sin[row * pairs + i] = std::sin(angle);
            }
        }
    });
}

void commit_kv(const LayerContext& context, int32_t kv_layer, cache::Sequence& sequence, int32_t begin,
               std::span<const int32_t> rows) {
    const cache::StateShape& shape = context.memory.shape();
    const size_t row_bytes = static_cast<size_t>(shape.head_dim) * shape.kv_element_bytes();
    const size_t kv_row_bytes = row_bytes * static_cast<size_t>(shape.n_kv_heads);
    const std::byte* k_rows = context.work.k_rows(kv_layer);
    const std::byte* v_rows = context.work.v_rows(kv_layer);
    for (size_t i = 0; i < rows.size(); ++i) {
        const int32_t position = begin + static_cast<int32_t>(i);
        const int32_t page = sequence.page(position / cache::kPageTokens);
        const int32_t lane = position % cache::kPageTokens;
        for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
            const size_t offset = static_cast<size_t>(rows[i]) * kv_row_bytes + static_cast<size_t>(head) * row_bytes;
            context.model.kernels().k_place(
                {shape.kv, k_rows + offset, context.memory.k_block(page, kv_layer, head), lane, shape.head_dim});
            std::memcpy(context.memory.v_block(page, kv_layer, head) + static_cast<size_t>(lane) * row_bytes, v_rows + offset,
                        row_bytes);
        }
    }
}

Result<std::unique_ptr<Forward>> Forward::create(const Model& model, cache::Memory& memory, ThreadPool& pool,
                                                 const PassLimits& limits) {
    TRY_ASSIGN(Workspace work, Workspace::create(model, limits, pool.n_threads()));
    return std::unique_ptr<Forward>(new Forward(model, memory, pool, limits, std::move(work)));
}

Forward::Forward(const Model& model, cache::Memory& memory, ThreadPool& pool, const PassLimits& limits, Workspace work)
    : model_(model), memory_(memory), pool_(pool), pass_(limits), work_(std::move(work)) {
    working_states_.reserve(static_cast<size_t>(limits.segments_max));
    tips_.reserve(static_cast<size_t>(limits.segments_max));
    tokens_.reserve(static_cast<size_t>(limits.rows_max));
    path_rows_.reserve(static_cast<size_t>(limits.tree_nodes_max));
    path_tree_rows_.reserve(static_cast<size_t>(limits.tree_nodes_max));
    path_tokens_.reserve(static_cast<size_t>(limits.tree_nodes_max));
}

Forward::~Forward() {
    release_working_states();
}

LayerContext Forward::context() {
    return {model_, pass_, work_, memory_, pool_, working_states_, observer_, profile_};
}

void Forward::release_working_states() {
    for (const int32_t state : working_states_) {
        if (state >= 0) memory_.states().release(state);
    }
    working_states_.clear();
}

Status Forward::begin(std::span<const Segment> segments) {
    release_working_states();
    TRY(pass_.plan(segments, Pass::Base::trunk));
    tokens_.clear();
    tips_.assign(segments.size(), -1);
    for (size_t s = 0; s < segments.size(); ++s) {
        tokens_.insert(tokens_.end(), segments[s].tokens.begin(), segments[s].tokens.end());
        const PassSegment& planned = pass_.segments()[s];
        TRY(segments[s].sequence->make_writable(planned.base, deepest_position(pass_, static_cast<int32_t>(s))));
        const int32_t state = memory_.states().acquire();
        if (state < 0) return exhausted(fmt::format("all {} sequence states are in use", memory_.states().n_slots()));
        working_states_.push_back(state);
    }
    fill_rotation(context());
    return {};
}

void Forward::run_one_layer(const LayerWeights& layer) {
    if (layer.attention) run_attention(context(), layer);
    else run_recurrent(context(), layer);
    run_mlp(context(), layer);
}

Status Forward::run(std::span<const Segment> segments) {
    mark(context(), Work::other);
    TRY(begin(segments));
    const int64_t hidden = model_.config().hidden;
    for_row_blocks(context(), [&](int32_t begin, int32_t end, int) {
        for (int32_t row = begin; row < end; ++row) model_.embed(tokens_[static_cast<size_t>(row)], work_.x + row * hidden);
    });
    mark(context(), Work::setup);
    const std::span<const float> rows(work_.x, static_cast<size_t>(pass_.n_rows() * hidden));
    if (tap_) tap_(0, rows);
    int32_t index = 0;
    for (const LayerWeights& layer : model_.layers()) {
        run_one_layer(layer);
        if (tap_) tap_(++index, rows);
    }
    norm_rows(context(), model_.final_norm(), work_.x, work_.hidden);
    mark(context(), Work::norm);
    return {};
}

Status Forward::run_layer(int32_t layer, cache::Sequence& sequence, std::span<float> x) {
    const auto n = x.size() / static_cast<size_t>(model_.config().hidden);
    const std::vector<TokenId> tokens(n, 0);
    const Segment segment{&sequence, tokens, {}, static_cast<int32_t>(n)};
    TRY(begin({&segment, 1}));
    std::memcpy(work_.x, x.data(), x.size_bytes());
    run_one_layer(model_.layers()[static_cast<size_t>(layer)]);
    std::memcpy(x.data(), work_.x, x.size_bytes());
    return {};
}

const float* Forward::hidden(int32_t segment, int32_t node) const {
    return work_.hidden + static_cast<int64_t>(pass_.row(segment, node)) * model_.config().hidden;
}

void Forward::logits(int32_t segment, int32_t node_begin, int32_t n_nodes, float* out) {
    mark(context(), Work::other);
    const int64_t hidden_size = model_.config().hidden;
    model_.head().apply(hidden(segment, node_begin), hidden_size, n_nodes, out, model_.config().vocab, work_.matmul_scratch,
                        pool_);
    mark(context(), Work::head);
}

void Forward::commit_spine(int32_t segment) {
    mark(context(), Work::other);
    const PassSegment& s = pass_.segments()[static_cast<size_t>(segment)];
    int32_t& state = working_states_[static_cast<size_t>(segment)];
    CHECK(state >= 0, "a spine is committed once");
    CHECK(s.sequence->length() == s.base, "the sequence changed since the pass");
    const LayerContext c = context();
    // Consecutive rows; the list is the identity, cut to the spine.
    const auto order = pass_.order();
    const std::span<const int32_t> rows = order.subspan(
        static_cast<size_t>(std::find(order.begin(), order.end(), s.row_begin) - order.begin()), static_cast<size_t>(s.spine));
    pool_.run(model_.n_trunk_kv_layers(),
              [&](int64_t layer, int) { commit_kv(c, static_cast<int32_t>(layer), *s.sequence, s.base, rows); });
    std::memcpy(memory_.hidden(state), hidden(segment, s.spine - 1), static_cast<size_t>(model_.config().hidden) * sizeof(float));
    s.sequence->append(std::span(tokens_).subspan(static_cast<size_t>(s.row_begin), static_cast<size_t>(s.spine)), state);
    state = -1;
    tips_[static_cast<size_t>(segment)] = s.spine - 1;
    mark(context(), Work::commit);
}

Status Forward::commit_path(int32_t segment, std::span<const int32_t> path) {
    if (path.empty()) return {};
    mark(context(), Work::other);
    const PassSegment& s = pass_.segments()[static_cast<size_t>(segment)];
    cache::Sequence& sequence = *s.sequence;
    int32_t& tip = tips_[static_cast<size_t>(segment)];
    CHECK(tip >= 0, "commit_spine comes first");
    CHECK(sequence.length() == pass_.rows()[static_cast<size_t>(s.row_begin + tip)].position + 1,
          "the sequence changed since the last commit");
    CHECK(path.size() <= static_cast<size_t>(pass_.limits().tree_nodes_max), "a path has at most all draft nodes");
    for (size_t i = 0; i < path.size(); ++i) {
        CHECK(pass_.parents()[static_cast<size_t>(s.row_begin + path[i])] == (i == 0 ? tip : path[i - 1]),
              "a path follows parents");
    }
    const int32_t begin = sequence.length();
    TRY(sequence.make_writable(begin, begin + static_cast<int32_t>(path.size())));
    const int32_t from = sequence.state();
    const int32_t to = memory_.states().acquire();
    if (to < 0) return exhausted(fmt::format("all {} sequence states are in use", memory_.states().n_slots()));
    path_rows_.clear();
    path_tree_rows_.clear();
    path_tokens_.clear();
    for (const int32_t node : path) {
        path_rows_.push_back(s.row_begin + node);
        path_tree_rows_.push_back(s.tree_begin + node - s.spine);
        path_tokens_.push_back(tokens_[static_cast<size_t>(s.row_begin + node)]);
    }
    const LayerContext c = context();
    replay_recurrent(c, path_tree_rows_, from, to);
    pool_.run(model_.n_trunk_kv_layers(),
              [&](int64_t layer, int) { commit_kv(c, static_cast<int32_t>(layer), sequence, begin, path_rows_); });
    std::memcpy(memory_.hidden(to), hidden(segment, path.back()), static_cast<size_t>(model_.config().hidden) * sizeof(float));
    sequence.append(path_tokens_, to);
    tip = path.back();
    mark(context(), Work::commit);
    return {};
}

}  // namespace espalier::model
