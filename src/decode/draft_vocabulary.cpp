#include "decode/draft_vocabulary.h"

#include <algorithm>

#include "kernels/matmul/matmul.h"

namespace espalier::decode {
namespace {

constexpr auto kRows = static_cast<int32_t>(kernels::kPanelRows);
constexpr float kBlend = 0.02f;  // weight of a token in the miss rate: the last fifty count

}  // namespace

DraftVocabulary::DraftVocabulary(int32_t vocab) : all_{0, (vocab + kRows - 1) / kRows} {
    if (vocab <= 2 * kFrequent) return;
    const auto n_panels = static_cast<size_t>(all_.end);
    chosen_.resize(n_panels);
    std::fill_n(chosen_.begin(), kFrequent / kRows, true);
    ranges_.reserve(n_panels / 2 + 1);
}

void DraftVocabulary::add(std::span<const TokenId> tokens) {
    if (is_whole()) return;
    for (const TokenId token : tokens) {
        const auto panel = static_cast<size_t>(token / kRows);
        if (token < 0 || panel >= chosen_.size() || chosen_[panel]) continue;
        chosen_[panel] = true;
        is_changed_ = true;
    }
}

void DraftVocabulary::observe(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
        miss_rate_ = (1 - kBlend) * miss_rate_ + (contains(token) ? 0.0f : kBlend);
        add({&token, 1});
    }
}

bool DraftVocabulary::contains(TokenId token) const {
    const int64_t panel = token / kRows;
    return token >= 0 && panel < all_.end && (is_whole() || chosen_[static_cast<size_t>(panel)]);
}

std::span<const model::PanelRange> DraftVocabulary::panels() {
    if (is_whole() || miss_rate_ > kMissesMax) return {&all_, 1};
    if (is_changed_) {
        ranges_.clear();
        for (size_t panel = 0; panel < chosen_.size(); ++panel) {
            if (!chosen_[panel]) continue;
            const auto begin = static_cast<int64_t>(panel);
            if (!ranges_.empty() && ranges_.back().end == begin) ++ranges_.back().end;
            else ranges_.push_back({begin, begin + 1});
        }
        is_changed_ = false;
    }
    return ranges_;
}

}  // namespace espalier::decode
