#include "decode/draft_odds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace espalier::decode {
namespace {

// The number of limits that x reaches.
template <class T>
size_t bucket(T x, std::span<const T> limits) {
    return static_cast<size_t>(std::upper_bound(limits.begin(), limits.end(), x) - limits.begin());
}

constexpr std::array<int32_t, 7> kLengths = {3, 4, 5, 7, 10, 16, 32};
constexpr std::array<float, 5> kShares = {0.1f, 0.25f, 0.5f, 0.75f, 0.95f};
constexpr std::array<int32_t, 2> kCounts = {2, 4};
constexpr std::array<float, 9> kRates = {0.02f, 0.05f, 0.1f, 0.2f, 0.35f, 0.5f, 0.7f, 0.85f, 0.95f};
constexpr std::array<int32_t, 2> kOthers = {2, 4};
constexpr std::array<int32_t, 2> kDepths = {1, 3};

constexpr size_t kSuffixCells = (kLengths.size() + 1) * (kShares.size() + 1) * (kCounts.size() + 1);
constexpr size_t kTemplateCells = ToolText::kPlaces * (kOthers.size() + 1);
constexpr size_t kMtpCells = (kRates.size() + 1) * 2 * 2 * (kDepths.size() + 1);
constexpr size_t kAllCells = (kRates.size() + 1) * 8 * 2;

// Before anything is learned, measured on the recorded conversations of the agentic workload (eval draft-replay): what came next
// when nearly all matches agreed, by the length of the longest and by how many there were.
constexpr std::array<std::array<float, kCounts.size() + 1>, kLengths.size() + 1> kAgreedRates = {{{0.55f, 0.71f, 0.94f},
                                                                                                  {0.66f, 0.86f, 0.98f},
                                                                                                  {0.75f, 0.89f, 0.98f},
                                                                                                  {0.75f, 0.88f, 0.98f},
                                                                                                  {0.85f, 0.95f, 0.98f},
                                                                                                  {0.85f, 0.95f, 0.95f},
                                                                                                  {0.85f, 0.93f, 0.95f},
                                                                                                  {0.95f, 0.98f, 0.98f}}};
constexpr float kMtpTopRate = 0.7f;
constexpr float kDisagreement = 0.85f;  // of a share of the matches
constexpr std::array<float, ToolText::kPlaces> kPlaceRates = {0.97f, 0.9f, 0.99f, 0.3f, 0.99f, 0.02f};

}  // namespace

DraftOdds::DraftOdds()
    : suffix_(kSuffixCells), template_(kTemplateCells), mtp_(kMtpCells), mtp_top_(kDepths.size() + 1), all_(kAllCells) {}

Evidence DraftOdds::of_suffix(const SuffixIndex::Candidate& candidate) const {
    const size_t length = bucket<int32_t>(candidate.length, kLengths);
    const size_t share = bucket<float>(candidate.share, kShares);
    const size_t count = bucket<int32_t>(candidate.count, kCounts);
    const size_t cell = (length * (kShares.size() + 1) + share) * (kCounts.size() + 1) + count;
    const float agreed = kAgreedRates[length][count];
    const float prior = share == kShares.size() ? agreed : kDisagreement * candidate.share * agreed;
    return {static_cast<uint16_t>(cell), suffix_.rate(cell, prior)};
}

Evidence DraftOdds::of_template(ToolText::Place place, int32_t n_candidates) const {
    const auto at = static_cast<size_t>(place);
    const size_t cell = at * (kOthers.size() + 1) + bucket<int32_t>(n_candidates, kOthers);
    return {static_cast<uint16_t>(cell), template_.rate(cell, kPlaceRates[at] / static_cast<float>(std::max(1, n_candidates)))};
}

Evidence DraftOdds::of_mtp(const MtpCandidate& candidate) const {
    size_t cell = bucket<float>(candidate.probability, kRates);
    cell = cell * 2 + (candidate.rank > 0 ? 1 : 0);
    cell = cell * 2 + (candidate.is_conditioned ? 1 : 0);
    cell = cell * (kDepths.size() + 1) + bucket<int32_t>(candidate.depth, kDepths);
    // A row for another path is a guess about this one.
    return {static_cast<uint16_t>(cell), mtp_.rate(cell, candidate.probability * (candidate.is_conditioned ? 0.9f : 0.3f))};
}

Evidence DraftOdds::of_all(uint8_t kinds, uint8_t spoken, float best) const {
    const size_t contested = (spoken & ~kinds) != 0 ? 1 : 0;
    const size_t cell = (bucket<float>(best, kRates) * 8 + kinds) * 2 + contested;
    return {static_cast<uint16_t>(cell), all_.rate(cell, contested != 0 ? best * best : best)};
}

float DraftOdds::of_mtp_top(int32_t depth) const {
    return mtp_top_.rate(bucket<int32_t>(depth, kDepths), kMtpTopRate);
}

void DraftOdds::learn_mtp_top(int32_t depth, bool is_hit) {
    mtp_top_.update(bucket<int32_t>(depth, kDepths), is_hit);
}

void DraftOdds::learn(DraftKind kind, uint16_t cell, bool is_hit) {
    RateTable& table = kind == DraftKind::suffix ? suffix_ : kind == DraftKind::template_text ? template_ : mtp_;
    table.update(cell, is_hit);
}

}  // namespace espalier::decode
