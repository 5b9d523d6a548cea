// One forward pass of the trunk over token trees of one or several sequences, and the commit of what was accepted.
//
// run() reads committed state and writes scratch only: calling it twice without a commit gives the same bits. commit_spine()
// makes the spine permanent; between it and commit_path() the caller may take a snapshot. commit_path() replays accepted
// draft nodes with the arithmetic of the pass itself. A pass allocates nothing.
//
// Thread: the engine thread; the pool's workers help inside a call. Model, memory and pool must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/sequence.h"
#include "model/layers/layers.h"
#include "model/model.h"
#include "model/pass.h"
#include "model/workspace.h"

namespace espalier::model {

class Forward {
public:
    // Errors: exhausted when scratch cannot be allocated.
    static Result<std::unique_ptr<Forward>> create(const Model& model, cache::Memory& memory, ThreadPool& pool,
                                                   const PassLimits& limits);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

    const PassLimits& limits() const { return pass_.limits(); }

    // Computes all nodes of all segments. Token ids must be below the vocabulary size (CHECK).
    // Errors: invalid_input for a malformed tree, exhausted when pages, states or limits do not suffice. On error nothing is
    // committed.
    Status run(std::span<const Segment> segments);

    // Of the last run, until the next one. Hidden rows are after the final norm: [hidden].
    const float* hidden(int32_t segment, int32_t node) const;
    // Logits of nodes [node_begin, node_begin + n_nodes) of a segment into out [n_nodes, vocab].
    void logits(int32_t segment, int32_t node_begin, int32_t n_nodes, float* out);

    // Appends the spine of a segment to its sequence.
    void commit_spine(int32_t segment);
    // After commit_spine: appends draft nodes `path` (a path from the last committed node, ascending). May be called again to go
    // on from there. Errors: exhausted.
    Status commit_path(int32_t segment, std::span<const int32_t> path);

    // For reference comparisons: the residual stream after the embedding (index 0) and after each layer (index + 1).
    using Tap = std::function<void(int32_t index, std::span<const float> rows)>;
    void set_tap(Tap tap) { tap_ = std::move(tap); }
    // Shown every layer's inputs from now on; null to stop. Must outlive its use.
    void set_observer(ActivationObserver* observer) { observer_ = observer; }
    ActivationObserver* observer() const { return observer_; }
    // Told where the time goes from now on; null to stop. Must outlive its use.
    void set_profile(StepProfile* profile) { profile_ = profile; }
    // Only one layer (index among those loaded), at the end of `sequence`: rows [n, hidden] in x become that layer's output.
    // n <= rows_max. commit_spine() may follow, if the model holds no other layer.
    Status run_layer(int32_t layer, cache::Sequence& sequence, std::span<float> x);

    // Shared with the MTP head, which runs between passes of the trunk.
    Workspace& workspace() { return work_; }
    cache::Memory& memory() { return memory_; }
    ThreadPool& pool() { return pool_; }
    const Model& model() const { return model_; }

private:
    Forward(const Model& model, cache::Memory& memory, ThreadPool& pool, const PassLimits& limits, Workspace work);
    Status begin(std::span<const Segment> segments);
    void release_working_states();
    void run_one_layer(const LayerWeights& layer);
    LayerContext context();

    const Model& model_;
    cache::Memory& memory_;
    ThreadPool& pool_;
    Pass pass_;
    Workspace work_;
    std::vector<int32_t> working_states_;  // per segment, -1 once committed
    std::vector<int32_t> tips_;            // per segment: last committed node, -1 before commit_spine
    std::vector<TokenId> tokens_;          // per row
    std::vector<int32_t> path_rows_;       // of commit_path: rows of the pass, rows of the journal, tokens
    std::vector<int32_t> path_tree_rows_;
    std::vector<TokenId> path_tokens_;
    Tap tap_;
    ActivationObserver* observer_ = nullptr;
    StepProfile* profile_ = nullptr;
};

// cos and sin of every row's position into work.cos, work.sin.
void fill_rotation(const LayerContext& context);

// Scatters K/V rows of one layer into the sequence's pages: row rows[i] becomes position begin + i. Pages must be writable.
void commit_kv(const LayerContext& context, int32_t kv_layer, cache::Sequence& sequence, int32_t begin,
               std::span<const int32_t> rows);

}  // namespace espalier::model
