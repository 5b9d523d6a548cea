#include "decode/suffix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace espalier::decode {
namespace {

constexpr int32_t kRareOrder = 5;
constexpr int32_t kRareSteps = 32;
constexpr int32_t kCommonSteps = 64;

uint64_t mix(uint64_t hash, TokenId token) {
    return (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
}

// A long match says more than many short ones; the newest a little more than older ones.
float weight(int32_t length, bool is_newest) {
    const auto l = static_cast<float>(std::min(length, 32));
    return l * l * (is_newest ? 2.0f : 1.0f);
}

}  // namespace

SuffixIndex::SuffixIndex(int32_t tokens_max) {
    CHECK(tokens_max >= 0, "a capacity");
    const auto n = static_cast<size_t>(tokens_max);
    tokens_.reserve(n);
    for (Chain* chain : {&rare_, &common_}) {
        chain->order = chain == &rare_ ? kRareOrder : kLengthMin;
        chain->heads.assign(std::bit_ceil(std::max<size_t>(n, 16)), -1);
        chain->prev.resize(n + 1);
    }
}

void SuffixIndex::append(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
        if (tokens_.size() == tokens_.capacity()) return;
        tokens_.push_back(token);
        for (Chain* chain : {&rare_, &common_}) {
            if (size() < chain->order) continue;
            uint64_t hash = 0;
            for (int32_t i = 0; i < chain->order; ++i) hash = mix(hash, context({}, i));
            int32_t& head = chain->heads[slot(*chain, hash)];
            chain->prev[static_cast<size_t>(size())] = head;
            head = size();
        }
    }
}

void SuffixIndex::walk(const Chain& chain, std::span<const TokenId> path, int32_t steps_max, std::span<Match, kMatchesMax> out,
                       int32_t& n) const {
    const int32_t n_context = size() + static_cast<int32_t>(path.size());
    if (n_context < chain.order) return;
    uint64_t hash = 0;
    for (int32_t i = 0; i < chain.order; ++i) hash = mix(hash, context(path, i));
    int32_t steps = 0;
    for (int32_t next = chain.heads[slot(chain, hash)]; next >= 0 && steps < steps_max;
         next = chain.prev[static_cast<size_t>(next)], ++steps) {
        if (next == size()) continue;  // nothing is known to follow
        const int32_t length_max = std::min({next, n_context, kLengthMax});
        int32_t length = 0;
        while (length < length_max && token(next - 1 - length) == context(path, length)) ++length;
        if (length < chain.order) continue;  // another string with this hash
        const auto found = out.first(static_cast<size_t>(n));
        if (std::any_of(found.begin(), found.end(), [next](const Match& m) { return m.next == next; })) continue;
        if (n == kMatchesMax) return;
        out[static_cast<size_t>(n++)] = {next, length};
    }
}

int32_t SuffixIndex::find(std::span<const TokenId> path, std::span<Match, kMatchesMax> out) const {
    int32_t n = 0;
    walk(rare_, path, kRareSteps, out, n);
    walk(common_, path, kCommonSteps, out, n);
    std::sort(out.begin(), out.begin() + n, [](const Match& a, const Match& b) { return a.next > b.next; });
    return n;
}

int32_t SuffixIndex::candidates(std::span<const TokenId> path, Candidates& out) const {
    std::array<Match, kMatchesMax> matches;
    const int32_t n_matches = find(path, matches);
    struct Sum {
        Candidate candidate;
        float weight = 0;
    };
    std::array<Sum, kMatchesMax> sums;
    size_t n = 0;
    float total = 0;
    for (int32_t i = 0; i < n_matches; ++i) {
        const Match& match = matches[static_cast<size_t>(i)];
        const TokenId next = token(match.next);
        const float w = weight(match.length, i == 0);
        total += w;
        size_t at = 0;
        while (at < n && sums[at].candidate.token != next) ++at;
        if (at == n) sums[n++] = {{next, 0, 0, 0}, 0};
        sums[at].weight += w;
        sums[at].candidate.length = std::max(sums[at].candidate.length, match.length);
        ++sums[at].candidate.count;
    }
    const size_t kept = std::min(n, out.size());
    std::partial_sort(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(kept),
                      sums.begin() + static_cast<std::ptrdiff_t>(n), [](const Sum& a, const Sum& b) {
                          return a.weight > b.weight || (a.weight == b.weight && a.candidate.token < b.candidate.token);
                      });
    for (size_t i = 0; i < kept; ++i) {
        out[i] = sums[i].candidate;
        out[i].share = sums[i].weight / total;
    }
    return static_cast<int32_t>(kept);
}

}  // namespace espalier::decode
