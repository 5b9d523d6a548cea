// What a run of the agentic phase leaves behind: per-turn rows, replies, and the harness' result files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "bench/reply.h"

namespace espalier::bench {

// One request of a run and what became of it.
struct TurnRecord {
    std::string sample_uuid;  // 32 hex digits
    std::string conversation;
    int64_t turn = 0;          // client turn
    size_t dataset_index = 0;  // position among the file's requests
    std::string fault;         // "" = a complete reply; else connect, timeout, dropped, http_500, …
    std::string detail;
    bool was_reconnected = false;
    StreamedReply reply;
    int64_t issued_ns = 0;
    int64_t complete_ns = 0;
    std::optional<int64_t> prompt_tokens;
    std::optional<int64_t> new_tokens;
    std::optional<int64_t> output_tokens;
    std::optional<int64_t> tokens_after_first;  // the denominator of TPOT
    std::optional<double> iou;                  // nullopt = the turn is not scored

    bool is_ok() const { return fault.empty(); }
    std::optional<int64_t> ttft_ns() const;
    std::optional<double> tpot_ns() const;
    int64_t latency_ns() const { return complete_ns - issued_ns; }
};

// The reply as an assistant message: role, content, and reasoning_content and tool_calls where there are any.
Json assistant_reply(const StreamedReply& reply);

std::string_view turns_csv_header();
std::string turns_csv_row(const TurnRecord& turn);  // with the line end; unknown values are empty
std::string replies_line(const TurnRecord& turn);   // with the line end

struct RunInfo {
    std::string version;
    int64_t duration_ns = 0;  // first request to last completion
    bool is_complete = true;  // false: stopped before the last turn
    int concurrency = 1;
};

// performance/result_summary.json.
Json result_summary(std::span<const TurnRecord> turns, const RunInfo& info);

// The entry of accuracy/accuracy_results.json for the inline score (null score: nothing was scored).
Json inline_accuracy_entry(const Json& scores, size_t n_samples, const RunInfo& info);
// The whole accuracy file: average over the entries of type "accuracy", left out if there is none.
Json accuracy_results(const Json& entries);

// events.jsonl and sample_idx_map.json.
std::string events_jsonl(std::span<const TurnRecord> turns);
Json sample_index_map(std::span<const TurnRecord> turns);

// Creates the folder and its parents. Errors: invalid_input.
Status make_folder(const std::string& path);

}  // namespace espalier::bench
