#include "engine/warm_up.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "cache/sequence.h"
#include "engine/load.h"
#include "model/forward.h"

namespace espalier::engine {
namespace {

constexpr const char* kReport =
    "this build computes wrong numbers on this machine: please report this line with the output of espalier doctor; a lower tier "
    "may "
    "work, ESPALIER_ISA=avx2 or scalar";

std::string configuration(const model::Model& model) {
    return fmt::format("kernels {}, activations {}, keys and values {}", kernels::to_string(model.kernels().isa),
                       to_string(model.acts()), to_string(model.state_shape().kv));
}

// Appends tokens in passes as long as the limits allow; the logits of the last one.
Status append(model::Forward& forward, cache::Sequence& sequence, std::span<const int32_t> tokens, std::vector<float>& logits) {
    while (!tokens.empty()) {
        const size_t n = std::min(tokens.size(), static_cast<size_t>(forward.limits().rows_max));
        const model::Segment segment{&sequence, tokens.first(n), {}, static_cast<int32_t>(n)};
        TRY(forward.run({&segment, 1}));
        if (n == tokens.size()) forward.logits(0, static_cast<int32_t>(n) - 1, 1, logits.data());
        forward.commit_spine(0);
        tokens = tokens.subspan(n);
    }
    const bool is_finite = std::all_of(logits.begin(), logits.end(), [](float value) { return std::isfinite(value); });
    if (is_finite) return {};
    return internal_error(fmt::format("self-test: logits are not finite ({}): the weights are damaged, or {}",
                                      configuration(forward.model()), kReport));
}

}  // namespace

Status run_self_test(model::Forward& forward, cache::Memory& memory, const SelfTest& test) {
    const int32_t vocab = forward.model().config().vocab;
    std::vector<int32_t> prompt = test.prompt;
    for (int32_t id = 0; prompt.size() < 8 && test.prompt.empty(); ++id) prompt.push_back(id % vocab);
    const auto is_outside = [vocab](int32_t id) { return id < 0 || id >= vocab; };
    if (std::any_of(prompt.begin(), prompt.end(), is_outside) || std::any_of(test.reply.begin(), test.reply.end(), is_outside))
        return invalid_input(fmt::format("self-test: an id is outside the vocabulary of {}", vocab));
    const auto n_tokens = static_cast<int32_t>(prompt.size() + test.reply.size()) + 1;
    if (n_tokens > forward.limits().context_tokens) return {};  // a context this short is for experiments
    TRY_ASSIGN(cache::Sequence sequence, cache::Sequence::create(memory, forward.limits().context_tokens));
    std::vector<float> logits(static_cast<size_t>(vocab));
    TRY(append(forward, sequence, prompt, logits));
    for (size_t i = 0; i < test.reply.size(); ++i) {
        const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        if (best != test.reply[i]) {
            return internal_error(fmt::format("self-test: token {} of a known reply is {}, expected {} ({}): {}", i, best,
                                              test.reply[i], configuration(forward.model()), kReport));
        }
        TRY(append(forward, sequence, {&best, 1}, logits));
    }
    if (!test.reply.empty()) return {};
    const int32_t next = prompt.front();
    return append(forward, sequence, {&next, 1}, logits);
}

}  // namespace espalier::engine
