// The one step loop: a forward over what every running request needs next, then choice of tokens and commit.
//
// A request that still reads its prompt contributes a chunk (a spine); one that replies contributes its last token (a spine of
// one). A chunk that contains a boundary worth a snapshot puts it at the spine's end and carries what follows, up to the pass'
// draft limit, as the tree part of the same pass: the snapshot is exact and costs no extra forward. Whoever is about to choose a
// token, at the end of a prompt as well, may have drafts below that place.
//
// Verification: the token at a node is chosen exactly as plain decoding would choose it there, with that node's history and the
// random number of its position; while a child carries it, the walk goes down. So a reply is the same with any drafts or none,
// and a set of fixed candidates can not be accepted more often by any other rule. What lies beyond a stop is never committed.
//
// Thread: the engine thread. Steps allocate only where a snapshot is taken or log probabilities are asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "decode/cost_model.h"
#include "decode/draft_tree.h"
#include "decode/generation.h"
#include "decode/sampler.h"
#include "model/forward.h"

namespace espalier::decode {

// Where the time of all steps went.
struct StepTimes {
    double draft_ms = 0;
    double verify_ms = 0;  // forward, logits, choices
    double commit_ms = 0;
};

class StepLoop {
public:
    // vocab_usable: ids the tokenizer knows (rows beyond are padding). forward must outlive the loop. Errors: exhausted.
    static Result<std::unique_ptr<StepLoop>> create(model::Forward& forward, int32_t vocab_usable);

    // Is told how long steps take; null = nobody. Must outlive its use.
    void set_cost_model(CostModel* cost) { cost_ = cost; }

    // Called when a sequence stands exactly at one of its boundaries.
    using BoundaryHook = std::function<void(Generation& generation)>;

    // One step for all given generations (none done; at most segments_max). prefill_rows: prompt tokens that may be computed in
    // this step, all generations together; at least one per generation is. Errors: exhausted (no page or state left): nothing of
    // this step is committed.
    Status step(std::span<Generation* const> generations, int32_t prefill_rows, const BoundaryHook& at_boundary);

    // The first token of a generation whose whole prompt was restored, from the last hidden row kept with its state: no forward.
    // The generation may be done afterwards.
    void choose_first(Generation& generation);

    const StepTimes& times() const { return times_; }

private:
    struct PlannedSegment {
        int32_t begin = 0;  // in tokens_ and parents_
        int32_t chain = 0;  // nodes of the prompt or the reply's last token
        int32_t spine = 0;
    };
    // What is left of the pass' limits while it is planned.
    struct Room {
        int32_t rows = 0;
        int32_t tree_nodes = 0;
        int32_t segments = 0;  // still to be planned
    };

    StepLoop(model::Forward& forward, Sampler sampler, Buffer logits, int32_t logit_rows);
    void plan(Generation& generation, int32_t prefill_rows, Room& room, DraftTree& tree);
    void plan_drafts(Generation& generation, const PlannedSegment& planned, const Room& room, DraftTree& tree);
    Status finish(int32_t segment, Generation& generation, const BoundaryHook& at_boundary);
    Status commit_tail(int32_t segment, Generation& generation, const BoundaryHook& at_boundary);
    Status verify(int32_t segment, Generation& generation);
    void announce(int32_t segment, Generation& generation, std::span<const int32_t> nodes, const BoundaryHook& at_boundary);
    std::span<float> logits_of(int32_t segment, int32_t node, int32_t n_nodes);
    TokenId choose(std::span<float> logits, int64_t position, Generation& generation);

    model::Forward& forward_;
    CostModel* cost_ = nullptr;
    Sampler sampler_;
    Buffer logits_;  // [logit_rows_, vocab]
    int32_t logit_rows_;
    int32_t logits_begin_ = 0;  // nodes whose logits are at hand
    int32_t logits_end_ = 0;
    std::vector<model::Segment> segments_;
    std::vector<PlannedSegment> planned_;
    std::vector<DraftTree> trees_;   // per segment
    std::vector<TokenId> tokens_;    // nodes of all segments
    std::vector<int32_t> parents_;   // the same
    std::vector<int32_t> identity_;  // 0, 1, 2, ...
    std::vector<int32_t> path_;
    std::vector<int32_t> draft_path_;
    StepTimes times_;
    bool is_alone_ = false;
};

}  // namespace espalier::decode
