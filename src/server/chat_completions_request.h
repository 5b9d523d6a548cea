// The body of POST /v1/chat/completions (and /apply-template), read into the neutral chat request. Only shapes are checked
// here; histories that a template would refuse are repaired later, in text/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/json_fields.h"
#include "server/request_fields.h"
#include "text/chat_request.h"

namespace espalier::server {

enum class ParallelCalls { allowed, first_only };

struct ChatCompletionsRequest {
    RequestFields fields;
    text::ChatRequest chat;
    ParallelCalls parallel_calls = ParallelCalls::allowed;
    // A call that the reply must begin with (tool_choice named, or required): the allowed name, "" = any tool's.
    std::optional<std::string> forced_call;
    std::vector<std::string> unknown_fields;  // each is worth one warning in the log
};

// default_thinking: for requests that do not say. Error: 400 with the JSON path.
std::optional<ApiError> parse_chat_completions(std::string_view body, const ServerLimits& limits,
                                               const SamplingDefaults& defaults, text::Thinking default_thinking,
                                               ChatCompletionsRequest& out);

}  // namespace espalier::server
