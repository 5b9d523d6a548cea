// The performance phase of the agentic benchmark: recorded conversations replayed turn by turn against any OpenAI-compatible
// server.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace espalier::bench {

// "0,3-5" -> 0 3 4 5, ascending, without repeats. Errors: invalid_input, naming the part that is no number or range.
Result<std::vector<int64_t>> parse_index_list(std::string_view text);

// Client turns from first to last, both included, by the dataset's own numbers (requests have odd ones: 1, 3, 5, …).
struct TurnRange {
    int64_t first = 0;
    int64_t last = std::numeric_limits<int64_t>::max();
};
// "3-9", "3-" or "3". Errors: invalid_input.
Result<TurnRange> parse_turn_range(std::string_view text);

// model: replies end when the server ends them (at most max_completion_tokens). recorded: exactly as many tokens as the recorded
// reply has (max_tokens + ignore_eos), so that engines with any weights do the same work.
enum class ReplyLength { model, recorded };

struct AgenticOptions {
    std::string url;                     // http://host:port
    std::string dataset_path;            // JSON lines
    std::string out_dir;                 // created; files in it are overwritten
    std::vector<int64_t> conversations;  // indices in file order; empty = all
    TurnRange turns;
    ReplyLength reply_length = ReplyLength::model;
    std::string tokenizer_path;  // both or neither of the two
    std::string chat_template_path;
    std::string model;  // "" = the first name that /v1/models lists, else "default"
    std::string api_key;
    int64_t max_completion_tokens = 1024;
    double turn_timeout_s = 600;
    std::string version = "0.1.0";
    // Called after every turn with one line for a status display, at the end with an empty one; empty = no progress.
    std::function<void(std::string_view line)> on_progress;
};

struct AgenticReport {
    int64_t n_turns = 0;
    int64_t n_conversations = 0;
    std::optional<double> iou;  // nullopt = no turn was scored
    bool is_valid = false;      // every scored turn has an output and the run was not cut short
    std::optional<double> ttft_ms_median;
    std::optional<double> ttft_ms_max;
    std::optional<double> tpot_ms_median;
    std::optional<double> tokens_per_s;         // output tokens per second of the whole run, as the harness counts
    std::optional<double> decode_tokens_per_s;  // tokens after the first chunk per second after it
    std::optional<double> cached_share;         // cached prompt tokens / prompt tokens, as the server reports them
    std::optional<int64_t> prompt_tokens;
    std::optional<int64_t> cached_tokens;
    std::optional<int64_t> new_tokens;
    std::optional<int64_t> output_tokens;
    std::optional<int64_t> drafted;
    std::optional<int64_t> accepted;
    std::optional<double> tokens_per_round;
    std::optional<int64_t> server_rss_bytes;  // after the last turn; only a server on this machine
    std::optional<int64_t> server_rss_peak_bytes;
    double duration_s = 0;
    int64_t n_malformed_frames = 0;
    int64_t n_reconnects = 0;
    std::map<std::string, int64_t> faults;  // kind -> turns
    std::string first_fault;                // what the first failed turn reported
    std::string token_source;               // where counts of new tokens come from, "" = nowhere
    std::string out_dir;

    Json to_json() const;
    // The table for people, several lines.
    std::string to_table() const;
};

// Replays and writes out_dir: turns.csv, replies.jsonl, events.jsonl, sample_idx_map.json, scores.json,
// performance/result_summary.json, accuracy/accuracy_results.json. A failing turn is counted and named, not an error of the run.
// Errors: invalid_input (options, dataset, server that never answers), exhausted.
Result<AgenticReport> run_agentic(const AgenticOptions& options);

// A progress function that rewrites one line on stderr, or nothing when stderr is no terminal.
std::function<void(std::string_view)> terminal_progress();

}  // namespace espalier::bench
