#include "server/reply_json.h"

#include <algorithm>

namespace espalier::server {
namespace {

// JSON has no infinity: a token that was ruled out has this log-probability, as OpenAI's API writes it.
constexpr double kLogprobMin = -9999.0;

double finite(float logprob) {
    return std::max<double>(logprob, kLogprobMin);
}

Json token_json(engine::TokenId id, float logprob, const text::Tokenizer& tokenizer) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    Json entry = {{"token", std::string(bytes)}, {"logprob", finite(logprob)}, {"bytes", Json::array()}};
    for (const char c : bytes) entry["bytes"].push_back(static_cast<unsigned char>(c));
    return entry;
}

double per_second(int64_t count, double ms) {
    return ms > 0 ? static_cast<double>(count) * 1000.0 / ms : 0.0;
}

}  // namespace

Json usage_json(const engine::Timings& t) {
    return {{"prompt_tokens", t.prompt_tokens},
            {"completion_tokens", t.output_tokens},
            {"total_tokens", t.prompt_tokens + t.output_tokens},
            {"prompt_tokens_details", {{"cached_tokens", t.cached_tokens}}}};
}

Json timings_json(const engine::Timings& t) {
    const int32_t computed = t.prompt_tokens - t.cached_tokens;
    Json sources = Json::object();
    for (size_t i = 0; i < engine::kDraftSources.size(); ++i) {
        if (t.drafted_by[i] > 0) sources[engine::kDraftSources[i]] = {{"n", t.drafted_by[i]}, {"accepted", t.accepted_by[i]}};
    }
    return {{"cache_n", t.cached_tokens},
            {"cache_source", engine::to_string(t.cache_source)},
            {"restore_ms", t.restore_ms},
            {"prompt_n", computed},
            {"prompt_ms", t.prefill_ms},
            {"prompt_per_second", per_second(computed, t.prefill_ms)},
            {"predicted_n", t.output_tokens},
            {"predicted_ms", t.decode_ms},
            {"predicted_per_second", per_second(t.output_tokens, t.decode_ms)},
            {"draft_n", t.drafted},
            {"draft_n_accepted", t.accepted},
            {"draft_sources", std::move(sources)},
            {"rounds", t.rounds},
            {"queue_ms", t.queue_ms}};
}

Json chat_logprobs_json(const std::vector<engine::TokenLogprob>& logprobs, const text::Tokenizer& tokenizer) {
    Json content = Json::array();
    for (const engine::TokenLogprob& token : logprobs) {
        Json entry = token_json(token.token, token.logprob, tokenizer);
        entry["top_logprobs"] = Json::array();
        for (const auto& [id, logprob] : token.top) entry["top_logprobs"].push_back(token_json(id, logprob, tokenizer));
        content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs_json(const std::vector<engine::TokenLogprob>& logprobs, const text::Tokenizer& tokenizer) {
    Json out = {{"tokens", Json::array()}, {"token_logprobs", Json::array()}, {"top_logprobs", Json::array()}};
    for (const engine::TokenLogprob& token : logprobs) {
        out["tokens"].push_back(std::string(tokenizer.token_bytes(token.token)));
        out["token_logprobs"].push_back(finite(token.logprob));
        Json top = Json::object();
        for (const auto& [id, logprob] : token.top) top[std::string(tokenizer.token_bytes(id))] = finite(logprob);
        out["top_logprobs"].push_back(std::move(top));
    }
    return out;
}

void append_event(const Json& data, std::string& out) {
    out += "data: ";
    out += dump_json(data);
    out += "\n\n";
}

}  // namespace espalier::server
