// The accuracy phase: BFCL v4 single-turn samples, or a user's own tools and answers, sent to any OpenAI-compatible server.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "bench/bfcl/verdict.h"

namespace espalier::bench {

// One line of a dataset: {"messages", "tools", "ground_truth"} and, where it comes from BFCL, {"sample_id", "subset",
// "functions"}. Without "functions" they are derived from the tools; without "subset" it follows from the answer: no call
// expected = "irrelevance", one call = "multiple", more = "parallel_multiple".
struct BfclSample {
    std::string id;
    BfclTruth truth;
    Json messages;
    Json tools;
};

// Errors: invalid_input with the line number.
Result<std::vector<BfclSample>> parse_bfcl_samples(std::string_view jsonl, std::string_view what);

// How one subset went. Replies that failed or never came count as wrong in `overall` but not in the subset's own share, as in the
// harness.
struct SubsetCount {
    int64_t issued = 0;
    int64_t completed = 0;
    int64_t correct = 0;
};

struct BfclAggregate {
    double score = 0;  // correct / issued
    Json breakdown;    // as in accuracy_results.json
};
BfclAggregate aggregate_bfcl(const std::map<std::string, SubsetCount>& subsets);

// The MLPerf gate on both scores, in percent: 97 % of the reference.
inline constexpr double kGateOverall = 83.64;
inline constexpr double kGateNormalised = 85.32;

struct BfclOptions {
    std::string url;
    std::string dataset_path;
    std::string out_dir;
    std::string model;  // "" = the first that /v1/models lists
    std::string api_key;
    int64_t max_completion_tokens = 1024;
    double sample_timeout_s = 600;
    std::function<void(std::string_view line)> on_progress;
};

struct BfclReport {
    int64_t n_samples = 0;
    int64_t n_completed = 0;
    int64_t n_correct = 0;
    int64_t n_exceptions = 0;      // replies on which the harness' own scorer would raise; wrong here
    double overall = 0;            // percent
    double normalised = 0;         // percent
    bool has_passed_gate = false;  // meaningful for the full set of 995 only
    Json breakdown;
    std::map<std::string, int64_t> errors;  // error type -> samples
    std::map<std::string, int64_t> faults;
    int64_t n_malformed_frames = 0;
    double duration_s = 0;
    std::string out_dir;

    Json to_json() const;
    std::string to_table() const;
};

// Writes out_dir/accuracy/accuracy_results.json (an entry of a performance run already there is kept) and
// out_dir/bfcl_verdicts.jsonl. Errors: invalid_input (options, dataset, server that never answers), exhausted.
Result<BfclReport> run_bfcl(const BfclOptions& options);

}  // namespace espalier::bench
