// Which rows of the output matrix a draft step computes. The matrix is the larger part of such a step (Qwen3.5: 248,320 rows),
// but a draft may leave tokens out: a wrong draft costs a little time and never changes the text.
//
// Byte-level BPE numbers tokens in the order of their merges, so the first ids are the frequent ones. To these a request adds
// what stands in its own text: names of the task, and markers of the template, whose ids come last. Rows come in panels, as the
// kernels read them. If too many tokens of the replies are not among the rows, all are computed until they are again (FR-Spec,
// arXiv 2502.14856, ranks by corpus frequency).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/shape.h"
#include "model/model.h"

namespace espalier::decode {

class DraftVocabulary {
public:
    using TokenId = cache::TokenId;
    static constexpr int32_t kFrequent = 16'384;
    static constexpr float kMissesMax = 0.03f;  // of the tokens of replies, of late

    // vocab: rows of the matrix. Small ones are always whole.
    explicit DraftVocabulary(int32_t vocab);

    // Tokens that were read.
    void add(std::span<const TokenId> tokens);
    // Tokens that were written: counts those that could not have been drafted, then adds them.
    void observe(std::span<const TokenId> tokens);

    // Whether the row is among the chosen ones, even if all are computed at present.
    bool contains(TokenId token) const;
    // Ascending, not touching. Valid until the next add or observe. Allocates nothing.
    std::span<const model::PanelRange> panels();
    float miss_rate() const { return miss_rate_; }

private:
    bool is_whole() const { return chosen_.empty(); }

    std::vector<bool> chosen_;  // by panel; empty: all
    std::vector<model::PanelRange> ranges_;
    model::PanelRange all_;
    bool is_changed_ = true;
    float miss_rate_ = 0;
};

}  // namespace espalier::decode
