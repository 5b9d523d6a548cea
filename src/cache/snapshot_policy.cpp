#include "cache/snapshot_policy.h"

#include <algorithm>

namespace espalier::cache {
namespace {

// Boundaries this close share a snapshot: re-reading that many tokens costs one pass that the turn needs anyway.
constexpr int32_t kMergeTokens = 8;
// A junction must save this much over the point before it. Message ends after the first two are only worth it when large.
constexpr int32_t kJunctionGain = 256;
constexpr int32_t kMessageGain = 1024;
constexpr int32_t kLadderStep = 4096;
constexpr int64_t kHotMs = int64_t{3600} * 1000;

bool is_boundary(PointKind kind) {
    return kind == PointKind::user_boundary || kind == PointKind::tool_boundary;
}

// The deepest point at or before `length`, or the start of the prefill.
int32_t point_before(const std::vector<Point>& points, int32_t length, int32_t begin) {
    int32_t before = begin;
    for (const Point& point : points) {
        if (point.length <= length) before = std::max(before, point.length);
    }
    return before;
}

int32_t point_after(const std::vector<Point>& points, int32_t length, int32_t end) {
    int32_t after = end;
    for (const Point& point : points) {
        if (point.length > length) after = std::min(after, point.length);
    }
    return after;
}

void add_sorted(std::vector<Point>& points, Point point) {
    const auto at =
        std::upper_bound(points.begin(), points.end(), point, [](const Point& a, const Point& b) { return a.length < b.length; });
    points.insert(at, point);
}

// Message ends, in order: the first two of the conversation, each that closes a long stretch, and the last but one (the start of
// the newest message, where an edit of it parts).
void add_messages(const PromptPlan& plan, std::vector<Point>& points) {
    std::vector<int32_t> ends;
    for (const Point& point : plan.boundaries) {
        if (point.kind == PointKind::message_end) ends.push_back(point.length);
    }
    std::sort(ends.begin(), ends.end());
    for (size_t i = 0; i < ends.size(); ++i) {
        const int32_t end = ends[i];
        if (end <= plan.cached_tokens || end >= plan.prompt_tokens) continue;
        const int32_t gain = i < 2 ? kJunctionGain : kMessageGain;
        const int32_t gained = end - point_before(points, end, plan.cached_tokens);
        const bool is_near_next = point_after(points, end, plan.prompt_tokens) - end <= kMergeTokens;
        if (gained >= gain && !is_near_next) add_sorted(points, {end, i < 2 ? PointKind::message_end : PointKind::inner_message});
    }
}

void add_branch(const PromptPlan& plan, std::vector<Point>& points) {
    if (plan.branch <= plan.cached_tokens || plan.branch >= plan.prompt_tokens) return;
    const bool is_near_next = point_after(points, plan.branch, plan.prompt_tokens) - plan.branch <= kMergeTokens;
    if (plan.branch - point_before(points, plan.branch, plan.cached_tokens) >= kJunctionGain && !is_near_next)
        add_sorted(points, {plan.branch, PointKind::branch});
}

void add_ladder(const PromptPlan& plan, std::vector<Point>& points) {
    const std::vector<Point> others = points;
    for (int32_t length = plan.cached_tokens + kLadderStep; length < plan.prompt_tokens - kLadderStep / 2;
         length += kLadderStep) {
        const int32_t before = point_before(others, length, plan.cached_tokens);
        if (length - before >= kMessageGain && point_after(others, length, plan.prompt_tokens) - length >= kMessageGain)
            add_sorted(points, {length, PointKind::ladder});
    }
}

}  // namespace

std::vector<Point> merge_boundaries(std::span<const Point> boundaries) {
    std::vector<Point> merged;
    for (const Point& point : boundaries) {
        if (is_boundary(point.kind)) merged.push_back(point);
    }
    std::sort(merged.begin(), merged.end(), [](const Point& a, const Point& b) { return a.length < b.length; });
    size_t n = 0;
    for (const Point& point : merged) {
        if (n > 0 && point.length - merged[n - 1].length <= kMergeTokens) {
            merged[n - 1].kind = std::max(merged[n - 1].kind, point.kind);
        } else {
            merged[n++] = point;
        }
    }
    merged.resize(n);
    return merged;
}

std::vector<Point> plan_points(const PromptPlan& plan) {
    std::vector<Point> points;
    for (const Point& point : merge_boundaries(plan.boundaries)) {
        if (point.length > plan.cached_tokens && point.length <= plan.prompt_tokens) points.push_back(point);
    }
    const int32_t last = points.empty() ? plan.cached_tokens : points.back().length;
    if (last < plan.prompt_tokens) points.push_back({plan.prompt_tokens, PointKind::prompt_end});
    add_branch(plan, points);
    add_messages(plan, points);
    add_ladder(plan, points);
    return points;
}

std::vector<int32_t> thin_ladder(std::span<const int32_t> lengths, int32_t prompt_tokens) {
    std::vector<int32_t> kept;
    // From the end on: the next one kept lies at least twice as far away.
    int64_t distance_next = 0;
    for (size_t i = lengths.size(); i-- > 0;) {
        const int64_t distance = prompt_tokens - lengths[i];
        if (distance < distance_next) continue;
        kept.push_back(lengths[i]);
        distance_next = 2 * distance;
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
}

int32_t eviction_rank(const KeptFacts& facts) {
    if (facts.idle_ms > kHotMs) return 0;
    switch (facts.kind) {
        case PointKind::message_end:
        case PointKind::branch: return kRankProtected;
        case PointKind::inner_message: return 2;
        case PointKind::prompt_end:
        case PointKind::reply_end: return facts.is_superseded ? 1 : 2;
        case PointKind::ladder: return facts.is_superseded ? 1 : 3;
        case PointKind::tool_boundary: return !facts.is_superseded ? kRankProtected : facts.is_parent ? 3 : 1;
        case PointKind::user_boundary: return !facts.is_superseded ? kRankProtected : 3;
    }
    return 0;
}

}  // namespace espalier::cache
