// The verdict on one BFCL sample, as the MLPerf Edge Agentic accuracy phase reaches it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_value.h"

namespace espalier::bench {

// What a sample's answer is checked against.
struct BfclTruth {
    std::string subset;     // "simple_java", "live_parallel", …
    text::Value functions;  // BFCL's own form, with its type names
    text::Value answer;     // [{function: {parameter: [accepted values]}}]; empty = no call is right
};

struct BfclReply {
    std::string content;     // reasoning and content as one text
    std::string tool_calls;  // JSON text of the list of calls; "" = none
};

struct BfclVerdict {
    std::optional<double> score;  // 1 or 0; nullopt = the reference scorer raises an exception here
    std::string error_type;       // "" when right; "exception:TypeError" when the reference raises
    std::string detail;
    std::vector<std::string> sub_errors;
    text::ValueList extracted;  // the calls that were read: [{"name", "arguments"}]
};

// True for subsets where the right answer is no call.
bool is_hallucination_subset(std::string_view subset);

BfclVerdict bfcl_verdict(const BfclTruth& truth, const BfclReply& reply);

// A reply given as content and a list of calls (null, [] = none), as in the reference cases.
BfclReply bfcl_reply(const Json& content, const Json& tool_calls);

}  // namespace espalier::bench
