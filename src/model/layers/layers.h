// The parts of a decoder layer as functions over a planned pass. Each reads the residual stream `x` of the workspace and adds
// to it: x += mixer(norm(x)); x += mlp(norm(x)). Committed state is read, never written; what commit needs is recorded in the
// workspace (K/V rows, journal) and in the pass' working states.
#pragma once

#include <algorithm>
#include <span>

#include "base/thread_pool.h"
#include "cache/sequence.h"
#include "model/model.h"
#include "model/observer.h"
#include "model/pass.h"
#include "model/profile.h"
#include "model/workspace.h"

namespace espalier::model {

struct LayerContext {
    const Model& model;
    const Pass& pass;
    Workspace& work;
    cache::Memory& memory;
    ThreadPool& pool;
    std::span<const int32_t> working_states;  // per segment: the state slot that receives the state after the spine
    ActivationObserver* observer = nullptr;   // null except while a quantiser calibrates
    StepProfile* profile = nullptr;           // null except while a benchmark asks where time goes
};

// The time since the last mark was spent on this.
inline void mark(const LayerContext& context, Work work) {
    if (context.profile != nullptr) context.profile->mark(work);
}

// Shows the pass' new rows to the observer, if there is one. `rows` points at row 0 of the pass.
inline void observe(const LayerContext& context, ActivationSite site, const float* rows, int64_t stride, int64_t width) {
    if (context.observer == nullptr) return;
    const int32_t first = context.pass.segments().front().first_new;
    context.observer->observe(site, {rows + first * stride, stride, context.pass.n_rows() - first, width});
}

// The pass' new rows as they pass through a mixer or an MLP: work.normed times the first matrix becomes work.projected,
// work.mixed times the second is added to work.x.
kernels::MatmulRows outer_rows(const LayerContext& context, const LinearGroup& group);
kernels::MatmulRows inner_rows(const LayerContext& context, const LinearGroup& group);

// x[rows] (pass rows only from first_new on) -> y.
void norm_rows(const LayerContext& context, const std::vector<float>& weight, const float* x, float* y);
// The same from work.x into work.normed, and the rows converted for the matrices that read them.
void norm_rows_into(const LayerContext& context, const std::vector<float>& weight, const LinearGroup& group);
// Only the conversion.
void prepare_rows(const LayerContext& context, const LinearGroup& group, const kernels::MatmulRows& rows);

// Gated attention (spec 2.2-2.6). Needs work.cos/sin for every row.
void run_attention(const LayerContext& context, const LayerWeights& layer);
// Gated DeltaNet (spec 3).
void run_recurrent(const LayerContext& context, const LayerWeights& layer);
// Runs the recurrence of accepted draft nodes again, state slot `from` into `to`, with the inputs that the pass recorded: the
// same operations in the same order, so the state is the one that token-by-token decoding would have. tree_rows: the path's
// journal rows.
void replay_recurrent(const LayerContext& context, std::span<const int32_t> tree_rows, int32_t from, int32_t to);
// SwiGLU MLP.
void run_mlp(const LayerContext& context, const LayerWeights& layer);

// Passes of a decode step with or without drafts: every matrix is read once, so tasks may be small.
inline constexpr int32_t kFewRows = 16;

// Rows per task of elementwise work: at most 8, and a few tasks per thread.
inline int32_t rows_per_task(int32_t n_rows, int32_t n_threads) {
    return std::clamp(n_rows / (4 * n_threads), 1, 8);
}

// Runs body(row_begin, row_end, worker) over the pass' new rows.
template <class Body>
void for_row_blocks(const LayerContext& context, const Body& body) {
    const int32_t first = context.pass.segments().front().first_new;
    const int32_t n = context.pass.n_rows() - first;
    const int32_t rows = rows_per_task(n, context.pool.n_threads());
    context.pool.run((n + rows - 1) / rows, [&](int64_t task, int worker) {
        const int32_t begin = first + static_cast<int32_t>(task) * rows;
        body(begin, std::min(begin + rows, first + n), worker);
    });
}

}  // namespace espalier::model
