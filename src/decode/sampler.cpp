#include "decode/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "decode/random.h"

namespace espalier::decode {

Status check_params(const SamplerParams& params) {
    struct Range {
        const char* name;
        float value, low, high;
    };
    const Range ranges[] = {{"temperature", params.temperature, 0, 100},
                            {"top-p", params.top_p, 0, 1},
                            {"min-p", params.min_p, 0, 1},
                            {"repetition penalty", params.repetition_penalty, 0.01f, 100},
                            {"presence penalty", params.presence_penalty, -100, 100},
                            {"frequency penalty", params.frequency_penalty, -100, 100}};
    for (const Range& range : ranges) {
        if (range.value >= range.low && range.value <= range.high) continue;
        return invalid_input(fmt::format("{} is {}, expected {} to {}", range.name, range.value, range.low, range.high));
    }
    if (params.top_k < 0) return invalid_input(fmt::format("top-k is {}, expected at least 0", params.top_k));
    return {};
}

Sampler::Sampler(const kernels::KernelTable& kernels, int32_t vocab, int32_t vocab_usable)
    : kernels_(kernels), vocab_usable_(std::min(vocab, vocab_usable)) {
    CHECK(vocab_usable_ > 0, "a vocabulary has tokens");
    candidates_.resize(static_cast<size_t>(vocab_usable_));
    weights_.resize(static_cast<size_t>(vocab_usable_));
    counts_.assign(static_cast<size_t>(vocab), 0);
    seen_.assign(static_cast<size_t>(vocab), 0);
}

void Sampler::apply_penalties(std::span<float> logits, const SamplerParams& params, std::span<const TokenId> prompt,
                              std::span<const TokenId> reply) {
    for (const auto& [id, bias] : params.logit_bias) {
        if (id >= 0 && static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] += bias;
    }
    if (!params.needs_history()) return;
    for (const TokenId id : reply) ++counts_[static_cast<size_t>(id)];
    const auto penalise = [&](TokenId id) {
        const auto i = static_cast<size_t>(id);
        if (seen_[i] != 0) return;
        seen_[i] = 1;
        float& logit = logits[i];
        logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
        if (counts_[i] > 0) logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(counts_[i]);
    };
    for (const TokenId id : reply) penalise(id);
    for (const TokenId id : prompt) penalise(id);
    for (const TokenId id : reply) seen_[static_cast<size_t>(id)] = 0, counts_[static_cast<size_t>(id)] = 0;
    for (const TokenId id : prompt) seen_[static_cast<size_t>(id)] = 0;
}

TokenId Sampler::choose(std::span<float> logits, const SamplerParams& params, int64_t position, std::span<const TokenId> prompt,
                        std::span<const TokenId> reply) {
    apply_penalties(logits, params, prompt, reply);
    if (params.temperature > 0) return draw(logits, params, position);
    float value = 0;
    int64_t index = 0;
    kernels_.argmax({logits.data(), vocab_usable_, &value, &index});
    return static_cast<TokenId>(index);
}

TokenId Sampler::draw(std::span<const float> logits, const SamplerParams& params, int64_t position) {
    float best = 0;
    int64_t best_index = 0;
    kernels_.argmax({logits.data(), vocab_usable_, &best, &best_index});
    const double temperature = params.temperature;
    // Below this a token's weight is under 2^-64 of the best one's: it cannot be drawn by a 53-bit number.
    const float floor = static_cast<float>(best - 45.0 * temperature);
    size_t n = 0;
    for (int32_t id = 0; id < vocab_usable_; ++id) {
        const float logit = logits[static_cast<size_t>(id)];
        if (logit >= floor) candidates_[n++] = {logit, id};
    }
    if (n == 0) return static_cast<TokenId>(best_index);  // nothing but NaN
    const auto better = [](const Candidate& a, const Candidate& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    };
    const auto begin = candidates_.begin();
    if (params.top_k > 0 && static_cast<size_t>(params.top_k) < n) {
        std::nth_element(begin, begin + params.top_k, begin + static_cast<std::ptrdiff_t>(n), better);
        n = static_cast<size_t>(params.top_k);
    }
    std::sort(begin, begin + static_cast<std::ptrdiff_t>(n), better);
    double total = 0;
    for (size_t i = 0; i < n; ++i) {
        weights_[i] = std::exp((static_cast<double>(candidates_[i].logit) - best) / temperature);
        total += weights_[i];
    }
    if (params.top_p < 1.0f) {
        // The smallest set of best tokens whose share reaches top_p; at least one.
        double kept = weights_[0];
        size_t count = 1;
        while (count < n && kept < params.top_p * total) kept += weights_[count++];
        n = count;
        total = kept;
    }
    if (params.min_p > 0) {
        size_t count = 1;
        double kept = weights_[0];
        while (count < n && weights_[count] >= params.min_p * weights_[0]) kept += weights_[count++];
        n = count;
        total = kept;
    }
    double rest = uniform_at(params.seed, static_cast<uint64_t>(position)) * total;
    for (size_t i = 0; i + 1 < n; ++i) {
        rest -= weights_[i];
        if (rest < 0) return candidates_[i].id;
    }
    return candidates_[n - 1].id;
}

std::vector<TokenLogprob> Sampler::logprobs(std::span<const float> logits, TokenId chosen, int32_t n) const {
    const auto usable = logits.first(static_cast<size_t>(vocab_usable_));
    const float best = *std::max_element(usable.begin(), usable.end());
    double total = 0;
    for (const float logit : usable) total += std::exp(static_cast<double>(logit) - best);
    const double log_total = std::log(total) + best;
    const auto logprob = [&](TokenId id) { return static_cast<float>(usable[static_cast<size_t>(id)] - log_total); };
    std::vector<TokenLogprob> result{{chosen, logprob(chosen)}};
    if (n <= 0) return result;
    std::vector<TokenId> ids(usable.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
    const auto count = std::min(static_cast<size_t>(n), ids.size());
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), [&](TokenId a, TokenId b) {
        const float x = usable[static_cast<size_t>(a)];
        const float y = usable[static_cast<size_t>(b)];
        return x > y || (x == y && a < b);
    });
    for (size_t i = 0; i < count; ++i) result.push_back({ids[i], logprob(ids[i])});
    return result;
}

}  // namespace espalier::decode
