// Where a sequence is worth a snapshot, and which snapshot is given up first. Pure functions; the prefix tree and the engine
// obey.
//
// A recurrent layer cannot step back, so a later prompt can only go on where a snapshot was taken. A snapshot costs a state slot
// (as much as the keys and values of thousands of tokens), so there are few, at the places where prompts of agents really part:
//  - user and tool boundaries: how far the prompt stays as it is when a user or a tool message follows. The server finds them by
//    rendering. With Qwen's template the user boundary lies before the first reply since the last question, because reasoning
//    is then dropped from the history;
//  - the end of the prompt: the same request again computes nothing; the end of the reply: for clients that send it back
//  verbatim;
//  - junctions: ends of messages in a long new stretch (system and tools, the first question; for edits also big tool results and
//    the start of the last message), and places where a prompt was seen to leave a known one;
//  - a ladder in very long prefills, thinned afterwards.
// Sources: Marconi (arXiv 2411.19379) for junctions and for admission by seen branches; the template's behaviour by rendering.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier::cache {

// inner_message: message_end is one of the first two in the conversation, this is any other.
enum class PointKind : uint8_t {
    ladder,
    prompt_end,
    reply_end,
    inner_message,
    message_end,
    branch,
    tool_boundary,
    user_boundary
};

struct Point {
    int32_t length = 0;  // tokens
    PointKind kind = PointKind::ladder;
    bool operator==(const Point&) const = default;
};

struct PromptPlan {
    int32_t prompt_tokens = 0;
    int32_t cached_tokens = 0;          // the prefill begins here
    std::span<const Point> boundaries;  // user_boundary, tool_boundary, message_end in any order; others are ignored
    int32_t branch = 0;                 // the prompt leaves a known timeline here, 0 = it does not
};

// The lengths in (cached_tokens, prompt_tokens] to take a snapshot at, ascending; the last is prompt_tokens if anything is
// computed.
std::vector<Point> plan_points(const PromptPlan& plan);

// The boundaries that a request names, each as the place where its snapshot is taken: boundaries closer than a few tokens share
// the shallower one, which serves both and keeps a turn to one forward pass.
std::vector<Point> merge_boundaries(std::span<const Point> boundaries);

// Of ladder points in a finished prefill, those that stay: one in each doubling of the distance from the end.
std::vector<int32_t> thin_ladder(std::span<const int32_t> lengths, int32_t prompt_tokens);

// What eviction knows about a snapshot.
struct KeptFacts {
    PointKind kind = PointKind::ladder;
    // A user or tool boundary lies deeper on the same timeline; of a user boundary: another user boundary does.
    bool is_superseded = false;
    bool is_parent = false;  // superseded, but only by the newest boundary: where the turn before began
    int64_t idle_ms = 0;
};

// Snapshots of lower rank go first; among equals the one unused for longest.
//  0  whatever was not used for an hour
//  1  inside of a conversation: ladder, old ends of prompts and replies, boundaries of turns before the last
//  2  ends of the newest prompts and replies, and of messages inside: one long prompt has many
//  3  where the turn before began, older questions, a prefill that was broken off
//  4  the newest boundaries of a conversation, and the other junctions
inline constexpr int32_t kRankProtected = 4;
int32_t eviction_rank(const KeptFacts& facts);

}  // namespace espalier::cache
