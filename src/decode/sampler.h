// From a row of logits to a token: bias and penalties, then greedy, or temperature, top-k, top-p, min-p in this order and one
// draw.
//
// Greedy takes the highest logit, the lowest id among equals. A draw walks the candidates from the most probable on (ties: lower
// id first), so that the same (logits, parameters, seed, position, history) gives the same token everywhere.
// Penalties: repetition divides positive and multiplies negative logits of every token of prompt and reply (Keskar et al. 2019);
// presence and frequency subtract for tokens of the reply.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kernels/dispatch.h"

namespace espalier::decode {

using TokenId = int32_t;

struct SamplerParams {
    float temperature = 0.0f;
    int32_t top_k = 0;
    float top_p = 1.0f;
    float min_p = 0.0f;
    float repetition_penalty = 1.0f;
    float presence_penalty = 0.0f;
    float frequency_penalty = 0.0f;
    uint64_t seed = 0;
    std::vector<std::pair<TokenId, float>> logit_bias;

    bool needs_history() const { return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f; }
};

// Errors: invalid_input naming the value that is out of range (or not a number).
Status check_params(const SamplerParams& params);

struct TokenLogprob {
    TokenId token = 0;
    float logprob = 0;
};

// Scratch for one vocabulary; reused by every request of the engine thread. Sampling allocates nothing.
class Sampler {
public:
    // Ids from vocab_usable on are padding rows of the head and never chosen.
    Sampler(const kernels::KernelTable& kernels, int32_t vocab, int32_t vocab_usable);

    // Chooses the token of absolute position `position`. logits: [vocab], modified in place by bias and penalties.
    TokenId choose(std::span<float> logits, const SamplerParams& params, int64_t position, std::span<const TokenId> prompt,
                   std::span<const TokenId> reply);

    // log softmax of raw logits for `chosen` (first) and the n best others. Allocates.
    std::vector<TokenLogprob> logprobs(std::span<const float> logits, TokenId chosen, int32_t n) const;

private:
    struct Candidate {
        float logit;
        TokenId id;
    };
    void apply_penalties(std::span<float> logits, const SamplerParams& params, std::span<const TokenId> prompt,
                         std::span<const TokenId> reply);
    TokenId draw(std::span<const float> logits, const SamplerParams& params, int64_t position);

    const kernels::KernelTable& kernels_;
    int32_t vocab_usable_;
    std::vector<Candidate> candidates_;
    std::vector<double> weights_;
    std::vector<int32_t> counts_;  // per id, of the reply; zeroed after use
    std::vector<uint8_t> seen_;
};

}  // namespace espalier::decode
