// JSON pieces that the OpenAI dialects share.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace espalier::server {

// What identifies a reply in every chunk of it.
struct ReplyHead {
    std::string id;
    std::string model;
    std::string fingerprint;
    int64_t created = 0;
};

Json usage_json(const engine::Timings& timings);
Json timings_json(const engine::Timings& timings);
// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}
Json chat_logprobs_json(const std::vector<engine::TokenLogprob>& logprobs, const text::Tokenizer& tokenizer);
// The older form: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
Json completion_logprobs_json(const std::vector<engine::TokenLogprob>& logprobs, const text::Tokenizer& tokenizer);

// "data: {…}\n\n"
void append_event(const Json& data, std::string& out);

}  // namespace espalier::server
