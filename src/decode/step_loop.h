// The one step loop: a forward over what every running request needs next, then commit and choice of tokens.
//
// A request that still reads its prompt contributes a chunk (a spine); one that replies contributes its last token (a spine of
// one). A chunk that contains a boundary worth a snapshot puts it at the spine's end and carries what follows, up to the pass'
// draft limit, as the tree part of the same pass: the snapshot is exact and costs no extra forward.
//
// Thread: the engine thread. Steps allocate only where a snapshot is taken or log probabilities are asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "decode/generation.h"
#include "decode/sampler.h"
#include "model/forward.h"

namespace espalier::decode {

class StepLoop {
public:
    // vocab_usable: ids the tokenizer knows (rows beyond are padding). forward must outlive the loop. Errors: exhausted.
    static Result<std::unique_ptr<StepLoop>> create(model::Forward& forward, int32_t vocab_usable);

    // Called when a sequence stands exactly at one of its boundaries.
    using BoundaryHook = std::function<void(Generation& generation)>;

    // One step for all given generations (none done; at most segments_max). prefill_rows: prompt tokens that may be computed in
    // this step, all generations together; at least one per generation is. Errors: exhausted (no page or state left): nothing of
    // this step is committed.
    Status step(std::span<Generation* const> generations, int32_t prefill_rows, const BoundaryHook& at_boundary);

    // The first token of a generation whose whole prompt was restored, from the last hidden row kept with its state: no forward. The
    // generation may be done afterwards.
    void choose_first(Generation& generation);

private:
    StepLoop(model::Forward& forward, Sampler sampler, Buffer logits);
    model::Segment plan(Generation& generation, int32_t rows);
    Status finish(int32_t segment, Generation& generation, const BoundaryHook& at_boundary);
    void choose(int32_t segment, int32_t node, Generation& generation);
    void choose_from_logits(Generation& generation);

    model::Forward& forward_;
    Sampler sampler_;
    Buffer logits_;  // [vocab]
    std::vector<model::Segment> segments_;
    std::vector<TokenId> roots_;  // per segment: storage of a one-token spine
    std::vector<int32_t> path_;
    bool is_alone_ = false;
};

}  // namespace espalier::decode
