#include "decode/step_loop.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace espalier::decode {
namespace {

// Tokens from `length` to the first boundary beyond it, n if there is none within n.
int32_t tokens_to_boundary(const Generation& generation, int32_t length, int32_t n) {
    for (const int32_t boundary : generation.params().boundaries) {
        if (boundary > length && boundary <= length + n) return boundary - length;
    }
    return n;
}

}  // namespace

Result<std::unique_ptr<StepLoop>> StepLoop::create(model::Forward& forward, int32_t vocab_usable) {
    const auto vocab = static_cast<size_t>(forward.model().config().vocab);
    TRY_ASSIGN(Buffer logits, Buffer::allocate(vocab * sizeof(float)));
    Sampler sampler(forward.model().kernels(), static_cast<int32_t>(vocab), vocab_usable);
    return std::unique_ptr<StepLoop>(new StepLoop(forward, std::move(sampler), std::move(logits)));
}

StepLoop::StepLoop(model::Forward& forward, Sampler sampler, Buffer logits)
    : forward_(forward), sampler_(std::move(sampler)), logits_(std::move(logits)) {
    segments_.reserve(static_cast<size_t>(forward.limits().segments_max));
    roots_.reserve(static_cast<size_t>(forward.limits().segments_max));
    path_.resize(static_cast<size_t>(forward.limits().tree_nodes_max));
}

model::Segment StepLoop::plan(Generation& generation, int32_t rows) {
    cache::Sequence& sequence = generation.sequence();
    if (!generation.is_prefilling()) {
        CHECK(!generation.needs_first_token(), "choose_first comes before the first step of a restored prompt");
        roots_.push_back(generation.root());
        return {&sequence, {&roots_.back(), 1}, {}, 1};
    }
    const int32_t length = sequence.length();
    const int32_t n = std::min(rows, generation.prompt_left());
    // The first boundary inside the chunk ends the spine; what follows, up to the next one, rides along if it is short. Draft
    // nodes are shared by all sequences of a pass, so only a lone one may carry a tail.
    const int32_t spine = tokens_to_boundary(generation, length, n);
    const int32_t rest = spine < n ? tokens_to_boundary(generation, length + spine, n - spine) : 0;
    const int32_t tail = is_alone_ && rest <= forward_.limits().tree_nodes_max ? rest : 0;
    return {&sequence, generation.prompt().subspan(static_cast<size_t>(length), static_cast<size_t>(spine + tail)), {}, spine};
}

Status StepLoop::step(std::span<Generation* const> generations, int32_t prefill_rows, const BoundaryHook& at_boundary) {
    CHECK(!generations.empty(), "a step has something to do");
    segments_.clear();
    roots_.clear();
    is_alone_ = generations.size() == 1;
    auto n_left = static_cast<int32_t>(generations.size());
    int32_t rows_left = forward_.limits().rows_max;
    for (Generation* generation : generations) {
        --n_left;
        const int32_t rows = std::max(1, std::min(prefill_rows, rows_left - n_left));
        segments_.push_back(plan(*generation, rows));
        const auto n = static_cast<int32_t>(segments_.back().tokens.size());
        rows_left -= n;
        if (n > 1) prefill_rows -= n;
    }
    TRY(forward_.run(segments_));
    for (size_t i = 0; i < generations.size(); ++i) TRY(finish(static_cast<int32_t>(i), *generations[i], at_boundary));
    return {};
}

Status StepLoop::finish(int32_t segment, Generation& generation, const BoundaryHook& at_boundary) {
    const model::Segment& planned = segments_[static_cast<size_t>(segment)];
    const auto n_nodes = static_cast<int32_t>(planned.tokens.size());
    const bool was_prefilling = generation.is_prefilling();
    forward_.commit_spine(segment);
    const auto& boundaries = generation.params().boundaries;
    if (at_boundary && std::find(boundaries.begin(), boundaries.end(), generation.sequence().length()) != boundaries.end()) {
        at_boundary(generation);
    }
    if (n_nodes > planned.spine) {
        const auto tail = std::span(path_).first(static_cast<size_t>(n_nodes - planned.spine));
        std::iota(tail.begin(), tail.end(), planned.spine);
        TRY(forward_.commit_path(segment, tail));
        if (at_boundary && std::find(boundaries.begin(), boundaries.end(), generation.sequence().length()) != boundaries.end()) {
            at_boundary(generation);
        }
    }
    if (generation.is_prefilling()) return {};
    if (!was_prefilling) ++generation.rounds;
    choose(segment, n_nodes - 1, generation);
    return {};
}

void StepLoop::choose(int32_t segment, int32_t node, Generation& generation) {
    forward_.logits(segment, node, 1, logits_.as<float>());
    choose_from_logits(generation);
}

void StepLoop::choose_first(Generation& generation) {
    CHECK(generation.needs_first_token(), "only a wholly restored prompt has its last hidden row at hand");
    cache::Memory& memory = generation.sequence().memory();
    const model::Model& model = forward_.model();
    model.head().apply(memory.hidden(generation.sequence().state()), model.config().hidden, 1, logits_.as<float>(),
                       model.config().vocab, forward_.workspace().matmul_scratch, forward_.pool());
    choose_from_logits(generation);
}

void StepLoop::choose_from_logits(Generation& generation) {
    const std::span<float> logits(logits_.as<float>(), logits_.bytes() / sizeof(float));
    float best = 0;
    int64_t best_index = 0;
    forward_.model().kernels().argmax({logits.data(), static_cast<int64_t>(logits.size()), &best, &best_index});
    if (!std::isfinite(best)) return generation.fail();
    const int32_t n_logprobs = generation.params().n_logprobs;
    std::vector<float> raw;
    if (n_logprobs >= 0) raw.assign(logits.begin(), logits.end());
    const TokenId token = sampler_.choose(logits, generation.params().sampling, generation.sequence().length(),
                                          generation.prompt(), generation.reply());
    if (n_logprobs >= 0) generation.record_logprobs(sampler_.logprobs(raw, token, n_logprobs));
    generation.accept(token);
}

}  // namespace espalier::decode
