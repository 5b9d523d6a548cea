// A streamed chat completion put together from its chunks, with the times that matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "bench/iou.h"

namespace espalier::bench {

// Nanoseconds of a monotonic clock.
int64_t monotonic_ns();

// What the server says about its own work, from `usage` and `timings`; absent = not said.
struct ServerCounts {
    std::optional<int64_t> prompt_tokens;
    std::optional<int64_t> cached_tokens;
    std::optional<int64_t> output_tokens;
    std::optional<int64_t> drafted;
    std::optional<int64_t> accepted;
    std::optional<int64_t> rounds;
    std::optional<double> prompt_ms;
    std::optional<double> predicted_ms;
};

// What the first chunk was: TPOT counts the tokens after it.
enum class FirstChunk { none, content, reasoning, tool_call };

// Follows the official client's accumulator: in one delta content wins over reasoning; the first chunk is the first non-empty
// content or reasoning or the first tool-call delta; frames of a shape that it refuses are counted and skipped.
class StreamedReply {
public:
    // The data of one server-sent event, received at now_ns.
    void on_event(std::string_view data, int64_t now_ns);

    std::string content;
    std::string reasoning;
    std::string finish_reason;  // "" = none was sent
    std::string server_error;   // the message of an error object in the stream
    ServerCounts counts;
    FirstChunk first_chunk = FirstChunk::none;
    size_t first_chunk_bytes = 0;           // of content or reasoning
    std::optional<int64_t> first_chunk_ns;  // the harness' first token
    std::optional<int64_t> first_delta_ns;  // first delta of any kind, an empty role delta included
    int n_deltas = 0;                       // deltas with content, reasoning or a tool-call fragment
    int n_malformed = 0;
    bool is_done = false;  // [DONE] arrived

    Json tool_calls() const { return merger_.calls(); }
    bool has_tool_calls() const { return !merger_.empty(); }
    // A terminal mark arrived: [DONE] or a finish reason.
    bool has_ended() const { return is_done || !finish_reason.empty(); }

private:
    void on_frame(const Json& frame, int64_t now_ns);
    bool on_delta(const Json& delta, int64_t now_ns);
    void mark_first(FirstChunk kind, size_t n_bytes, int64_t now_ns);

    ToolCallMerger merger_;
};

}  // namespace espalier::bench
