#include "decode/step_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace espalier::decode {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point from) {
    return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

// Rows of logits computed at a time: a walk rarely goes further, and the LM head is the largest matrix of a small model.
constexpr int32_t kLogitRows = 8;

// Tokens from `length` to the first boundary beyond it, n if there is none within n.
int32_t tokens_to_boundary(const Generation& generation, int32_t length, int32_t n) {
    for (const int32_t boundary : generation.params().boundaries) {
        if (boundary > length && boundary <= length + n) return boundary - length;
    }
    return n;
}

bool is_at_boundary(const Generation& generation) {
    const auto& boundaries = generation.params().boundaries;
    return std::find(boundaries.begin(), boundaries.end(), generation.sequence().length()) != boundaries.end();
}

}  // namespace

Result<std::unique_ptr<StepLoop>> StepLoop::create(model::Forward& forward, int32_t vocab_usable) {
    const auto vocab = static_cast<size_t>(forward.model().config().vocab);
    const int32_t logit_rows = std::min(kLogitRows, forward.limits().rows_max);
    TRY_ASSIGN(Buffer logits, Buffer::allocate(static_cast<size_t>(logit_rows) * vocab * sizeof(float)));
    Sampler sampler(forward.model().kernels(), static_cast<int32_t>(vocab), vocab_usable);
    return std::unique_ptr<StepLoop>(new StepLoop(forward, std::move(sampler), std::move(logits), logit_rows));
}

StepLoop::StepLoop(model::Forward& forward, Sampler sampler, Buffer logits, int32_t logit_rows)
    : forward_(forward), sampler_(std::move(sampler)), logits_(std::move(logits)), logit_rows_(logit_rows) {
    const auto n_segments = static_cast<size_t>(forward.limits().segments_max);
    const auto n_rows = static_cast<size_t>(forward.limits().rows_max);
    const auto n_nodes = static_cast<size_t>(forward.limits().tree_nodes_max);
    segments_.reserve(n_segments);
    planned_.reserve(n_segments);
    trees_.reserve(n_segments);
    for (size_t i = 0; i < n_segments; ++i) trees_.emplace_back(forward.limits().tree_nodes_max);
    tokens_.reserve(n_rows);
    parents_.reserve(n_rows);
    identity_.resize(n_rows);
    std::iota(identity_.begin(), identity_.end(), 0);
    path_.reserve(n_nodes);
    draft_path_.reserve(n_nodes);
}

void StepLoop::plan(Generation& generation, int32_t prefill_rows, Room& room, DraftTree& tree) {
    --room.segments;
    PlannedSegment planned;
    planned.begin = static_cast<int32_t>(tokens_.size());
    if (generation.is_prefilling()) {
        const int32_t length = generation.sequence().length();
        const int32_t rows = std::max(1, std::min(prefill_rows, room.rows - room.segments));
        const int32_t n = std::min(rows, generation.prompt_left());
        // The first boundary inside the chunk ends the spine; what follows, up to the next one, rides along if it is short. Draft
        // nodes are shared by all sequences of a pass, so only a lone one may carry a tail.
        planned.spine = tokens_to_boundary(generation, length, n);
        const int32_t rest = planned.spine < n ? tokens_to_boundary(generation, length + planned.spine, n - planned.spine) : 0;
        const int32_t tail = is_alone_ && rest <= room.tree_nodes ? rest : 0;
        planned.chain = planned.spine + tail;
        const auto chunk = generation.prompt().subspan(static_cast<size_t>(length), static_cast<size_t>(planned.chain));
        tokens_.insert(tokens_.end(), chunk.begin(), chunk.end());
        room.tree_nodes -= tail;
    } else {
        CHECK(!generation.needs_first_token(), "choose_first comes before the first step of a restored prompt");
        planned.spine = planned.chain = 1;
        tokens_.push_back(generation.root());
    }
    for (int32_t node = 0; node < planned.chain; ++node) parents_.push_back(node - 1);
    room.rows -= planned.chain;
    tree.clear();
    if (generation.drafts() != nullptr && generation.prompt_left() <= planned.chain) {
        plan_drafts(generation, planned, room, tree);
        for (const DraftNode& node : tree.nodes()) {
            tokens_.push_back(node.token);
            parents_.push_back(planned.chain + node.parent);
        }
        room.rows -= tree.size();
        room.tree_nodes -= tree.size();
    }
    planned_.push_back(planned);
    const auto begin = static_cast<size_t>(planned.begin);
    segments_.push_back(
        {&generation.sequence(), std::span(tokens_).subspan(begin), std::span(parents_).subspan(begin), planned.spine});
}

void StepLoop::plan_drafts(Generation& generation, const PlannedSegment& planned, const Room& room, DraftTree& tree) {
    const int32_t root = generation.sequence().length() + planned.chain - 1;
    DraftLimits limits;
    // Every request gets its share, so that none starves another.
    limits.nodes_max = std::min(room.tree_nodes / (room.segments + 1), room.rows - room.segments);
    // The reply's last token is chosen but not run, and no position lies beyond the context.
    const auto tokens_left = generation.params().max_tokens - static_cast<int32_t>(generation.reply().size());
    limits.depth_max = std::min(tokens_left - 1, generation.sequence().context_tokens() - 1 - root);
    limits.rows_beside = static_cast<int32_t>(tokens_.size());
    limits.context = root;
    if (limits.nodes_max > 0 && limits.depth_max > 0) {
        generation.drafts()->propose(generation.reply(), &generation.sequence(), limits, tree);
    }
    CHECK(tree.size() <= std::max(0, limits.nodes_max), "drafts keep to their limits");
}

Status StepLoop::step(std::span<Generation* const> generations, int32_t prefill_rows, const BoundaryHook& at_boundary) {
    CHECK(!generations.empty(), "a step has something to do");
    const auto begin = Clock::now();
    segments_.clear();
    planned_.clear();
    tokens_.clear();
    parents_.clear();
    is_alone_ = generations.size() == 1;
    bool is_prefilling = false;
    int32_t context = 0;
    size_t n_tokens = 0;
    Room room{forward_.limits().rows_max, forward_.limits().tree_nodes_max, static_cast<int32_t>(generations.size())};
    for (size_t i = 0; i < generations.size(); ++i) {
        is_prefilling = is_prefilling || generations[i]->is_prefilling();
        context = std::max(context, generations[i]->sequence().length());
        n_tokens += generations[i]->reply().size();
        plan(*generations[i], prefill_rows, room, trees_[i]);
        if (generations[i]->is_prefilling() && planned_.back().chain > 1) prefill_rows -= planned_.back().chain;
    }
    times_.draft_ms += ms_since(begin);
    const double verify_before = times_.verify_ms;
    const auto run_begin = Clock::now();
    TRY(forward_.run(segments_));
    times_.verify_ms += ms_since(run_begin);
    for (size_t i = 0; i < generations.size(); ++i) TRY(finish(static_cast<int32_t>(i), *generations[i], at_boundary));
    if (cost_ != nullptr && !is_prefilling) {
        cost_->measured(static_cast<int32_t>(tokens_.size()), context, times_.verify_ms - verify_before);
        size_t n_tokens_after = 0;
        for (const Generation* generation : generations) n_tokens_after += generation->reply().size();
        cost_->earned(ms_since(begin), static_cast<int32_t>(n_tokens_after - n_tokens));
    }
    return {};
}

Status StepLoop::finish(int32_t segment, Generation& generation, const BoundaryHook& at_boundary) {
    const PlannedSegment& planned = planned_[static_cast<size_t>(segment)];
    const bool was_prefilling = generation.is_prefilling();
    const auto commit_begin = Clock::now();
    forward_.commit_spine(segment);
    announce(segment, generation, std::span(identity_).first(static_cast<size_t>(planned.spine)), at_boundary);
    if (planned.chain > planned.spine) TRY(commit_tail(segment, generation, at_boundary));
    times_.commit_ms += ms_since(commit_begin);
    if (generation.is_prefilling()) return {};
    if (!was_prefilling) ++generation.rounds;
    return verify(segment, generation);
}

// What of the prompt lies beyond the spine's boundary.
Status StepLoop::commit_tail(int32_t segment, Generation& generation, const BoundaryHook& at_boundary) {
    const PlannedSegment& planned = planned_[static_cast<size_t>(segment)];
    const auto tail = std::span<const int32_t>(identity_).subspan(static_cast<size_t>(planned.spine),
                                                                  static_cast<size_t>(planned.chain - planned.spine));
    TRY(forward_.commit_path(segment, tail));
    announce(segment, generation, tail, at_boundary);
    return {};
}

void StepLoop::announce(int32_t segment, Generation& generation, std::span<const int32_t> nodes,
                        const BoundaryHook& at_boundary) {
    const bool is_boundary = at_boundary && is_at_boundary(generation);
    if (DraftSession* const drafts = generation.drafts()) {
        // A prompt's rows are many: they are settled at once, wherever the next snapshot will be.
        const bool is_prompt = generation.is_prefilling();
        const bool is_settling = is_boundary || nodes.size() > 1 || is_prompt;
        drafts->committed(generation.sequence(), {&forward_, segment, nodes, is_settling, is_prompt});
    }
    if (is_boundary) at_boundary(generation);
}

// Chooses at the root, then at every node that carries what was chosen; commits those nodes.
Status StepLoop::verify(int32_t segment, Generation& generation) {
    const auto verify_begin = Clock::now();
    const PlannedSegment& planned = planned_[static_cast<size_t>(segment)];
    const DraftTree& tree = trees_[static_cast<size_t>(segment)];
    const int32_t n_nodes = planned.chain + tree.size();
    int64_t position = generation.sequence().length();
    path_.clear();
    draft_path_.clear();
    logits_begin_ = logits_end_ = 0;
    for (int32_t node = -1;; ++position) {
        const TokenId token = choose(logits_of(segment, planned.chain + node, n_nodes), position, generation);
        if (generation.is_done()) break;
        node = tree.child(node, token);
        if (node < 0) break;
        draft_path_.push_back(node);
        path_.push_back(planned.chain + node);
    }
    times_.verify_ms += ms_since(verify_begin);
    const auto commit_begin = Clock::now();
    TRY(forward_.commit_path(segment, path_));
    DraftSession* const drafts = generation.drafts();
    if (drafts == nullptr) return {};
    if (!path_.empty() || generation.is_done())
        drafts->committed(generation.sequence(), {&forward_, segment, path_, generation.is_done()});
    times_.commit_ms += ms_since(commit_begin);
    count_drafts(tree, draft_path_, generation.draft_counts);
    if (generation.reason() != EndReason::broken) drafts->observe(generation.reply(), tree, draft_path_);
    return {};
}

std::span<float> StepLoop::logits_of(int32_t segment, int32_t node, int32_t n_nodes) {
    const auto vocab = static_cast<size_t>(forward_.model().config().vocab);
    if (node < logits_begin_ || node >= logits_end_) {
        logits_begin_ = node;
        logits_end_ = std::min(n_nodes, node + logit_rows_);
        forward_.logits(segment, logits_begin_, logits_end_ - logits_begin_, logits_.as<float>());
    }
    return {logits_.as<float>() + static_cast<size_t>(node - logits_begin_) * vocab, vocab};
}

void StepLoop::choose_first(Generation& generation) {
    CHECK(generation.needs_first_token(), "only a wholly restored prompt has its last hidden row at hand");
    cache::Memory& memory = generation.sequence().memory();
    const model::Model& model = forward_.model();
    const auto vocab = static_cast<size_t>(model.config().vocab);
    model.head().apply(memory.hidden(generation.sequence().state()), model.config().hidden, 1, logits_.as<float>(),
                       model.config().vocab, forward_.workspace().matmul_scratch, forward_.pool());
    choose({logits_.as<float>(), vocab}, generation.sequence().length(), generation);
}

// The token of `position`, appended to the reply. The generation may be done afterwards.
TokenId StepLoop::choose(std::span<float> logits, int64_t position, Generation& generation) {
    float best = 0;
    int64_t best_index = 0;
    forward_.model().kernels().argmax({logits.data(), static_cast<int64_t>(logits.size()), &best, &best_index});
    if (!std::isfinite(best)) {
        generation.fail();
        return 0;
    }
    const int32_t n_logprobs = generation.params().n_logprobs;
    std::vector<float> raw;
    if (n_logprobs >= 0) raw.assign(logits.begin(), logits.end());
    const TokenId token =
        sampler_.choose(logits, generation.params().sampling, position, generation.prompt(), generation.reply());
    if (n_logprobs >= 0) generation.record_logprobs(sampler_.logprobs(raw, token, n_logprobs));
    generation.accept(token);
    return token;
}

}  // namespace espalier::decode
