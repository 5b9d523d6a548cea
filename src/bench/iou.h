// The inline score of the agentic phase: which programs a reply would run, compared with those of the recorded reply.
//
// Source: mlcommons/endpoints (commit ea332753), AgenticInferenceInlineScorer. The rules are odd in places (heredoc lines count
// as commands, `sudo -E python` finds "-e") and are kept exactly, because the score is compared with published ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace espalier::bench {

// Canonical program names of a shell command, in order; unknown programs give nothing.
std::vector<std::string> command_actions(std::string_view command);

// The actions of a message's tool calls (complete calls: {"function": {"name", "arguments"}}); anything that is not a `bash` call
// with an object holding a string command gives nothing. Any JSON is accepted.
std::vector<std::string> bash_actions(const Json& tool_calls);

// Streamed fragments -> complete calls. An array whose items are arrays is a list of fragment lists, merged by `index`; an array
// of objects already holds complete calls and is returned as it is; anything else gives an empty array.
Json merge_tool_calls(const Json& tool_calls);

// Adds one fragment to `calls` (index -> call): id, type and name overwrite, arguments append, a missing index is 0.
// False when the fragment has a shape that the official client refuses.
class ToolCallMerger {
public:
    bool add(const Json& fragment);
    // The calls in index order; an empty array when there are none.
    Json calls() const;
    bool empty() const { return calls_.empty(); }

private:
    std::vector<std::pair<int64_t, Json>> calls_;  // sorted by index
};

// Multiset intersection over multiset union. 0 when both are empty.
double multiset_iou(const std::vector<std::string>& a, const std::vector<std::string>& b);

// Python's round(value, digits): correctly rounded from the exact binary value, ties to even.
double round_decimal(double value, int digits);

// One line of the reference cases: {"recorded": calls, "produced": {"tool_calls": …} or null}. nullopt = the recorded reply holds
// no action, so that the turn is not scored. Errors: invalid_input, when "recorded" is missing.
Result<std::optional<double>> score_iou_case(const Json& line);

}  // namespace espalier::bench
