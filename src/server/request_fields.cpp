#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "server/ids.h"

namespace espalier::server {
namespace {

void read_stops(FieldReader& reader, const ServerLimits& limits, ReadState& state, std::vector<std::string>& out) {
    const text::Value* value = reader.get("stop");
    if (value == nullptr) return;
    text::ValueList one;
    if (value->as_string() != nullptr) one.push_back(*value);
    const text::ValueList* list = value->as_string() != nullptr ? &one : value->as_list();
    if (list == nullptr) return reader.wrong_type("stop", "a string or an array of strings", *value);
    if (static_cast<int>(list->size()) > limits.stop_strings) {
        return state.fail(bad_value("stop", fmt::format("stop: {} strings, the limit is {}", list->size(), limits.stop_strings)));
    }
    for (size_t i = 0; i < list->size(); ++i) {
        const std::string path = fmt::format("stop[{}]", i);
        const std::string* text = (*list)[i].as_string();
        if (text == nullptr) return reader.wrong_type(path, "a string", (*list)[i]);
        if (text->empty() || text->size() > static_cast<size_t>(limits.stop_string_bytes)) {
            return state.fail(bad_value(
                path, fmt::format("{}: expected 1 to {} bytes, found {}", path, limits.stop_string_bytes, text->size())));
        }
        out.push_back(*text);
    }
}

void read_logit_bias(FieldReader& reader, ReadState& state, engine::SamplingParams& out) {
    const text::ValueDict* bias = reader.dict("logit_bias");
    if (bias == nullptr) return;
    for (const auto& [key, value] : *bias) {
        engine::TokenId id = -1;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        const double* number = value.as_float();
        const int64_t* integer = value.as_int();
        if (error != std::errc() || end != key.data() + key.size() || id < 0 || (number == nullptr && integer == nullptr)) {
            return state.fail(bad_value("logit_bias", "logit_bias: expected token ids as keys and numbers from -100 to 100"));
        }
        const double bias_value = number != nullptr ? *number : static_cast<double>(*integer);
        if (!(bias_value >= -100 && bias_value <= 100)) {
            return state.fail(bad_value("logit_bias", fmt::format("logit_bias.{}: expected a number from -100 to 100", key)));
        }
        out.logit_bias.emplace_back(id, static_cast<float>(bias_value));
    }
}

void read_seed(FieldReader& reader, ReadState& state, RequestFields& out) {
    const text::Value* seed = reader.get("seed");
    if (seed == nullptr) return;
    out.has_seed = true;
    if (seed->as_int() != nullptr) {
        out.sampling.seed = static_cast<uint64_t>(*seed->as_int());
    } else if (seed->as_big_int() != nullptr) {
        const std::string& digits = seed->as_big_int()->digits;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.sampling.seed);
        if (error != std::errc() || end != digits.data() + digits.size()) {
            state.fail(bad_value("seed", "seed: expected an integer of at most 64 bits"));
        }
    } else {
        reader.wrong_type("seed", "an integer", *seed);
    }
}

void read_sampling(FieldReader& reader, ReadState& state, const SamplingDefaults& defaults, engine::SamplingParams& out) {
    out.temperature = defaults.temperature;
    out.top_k = defaults.top_k;
    out.top_p = defaults.top_p;
    out.min_p = defaults.min_p;
    out.repetition_penalty = defaults.repetition_penalty;
    reader.number("temperature", 0, 100, out.temperature);
    int64_t top_k = 0;
    if (reader.integer("top_k", -1, std::numeric_limits<int32_t>::max(), top_k)) {
        out.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));  // -1 = off, as vLLM's clients write it
    }
    if (reader.number("top_p", 0, 1, out.top_p) && out.top_p == 0) {
        // The smallest nucleus is the best token alone.
        out.top_p = 1;
        out.top_k = 1;
    }
    reader.number("min_p", 0, 1, out.min_p);
    for (const char* name : {"repetition_penalty", "repeat_penalty"}) {
        if (reader.number(name, 0, 100, out.repetition_penalty) && out.repetition_penalty == 0) {
            state.fail(bad_value(reader.path(name), fmt::format("{}: expected a number above 0", reader.path(name))));
        }
    }
    reader.number("presence_penalty", -100, 100, out.presence_penalty);
    reader.number("frequency_penalty", -100, 100, out.frequency_penalty);
}

void read_lengths(FieldReader& reader, RequestFields& out) {
    // Newer name last, so that it wins. -1 = no limit of the client's own.
    for (const char* name : {"max_tokens", "max_completion_tokens"}) {
        reader.integer(name, -1, std::numeric_limits<int64_t>::max(), out.tokens_max);
    }
    bool ignore_eos = false;
    reader.boolean("ignore_eos", ignore_eos);
    out.eos = ignore_eos ? EosPolicy::ignore : EosPolicy::stop;
}

}  // namespace

void read_request_fields(FieldReader& reader, const ServerLimits& limits, const SamplingDefaults& defaults, ReadState& state,
                         RequestFields& out) {
    reader.string("model", out.model);
    read_sampling(reader, state, defaults, out.sampling);
    read_logit_bias(reader, state, out.sampling);
    read_seed(reader, state, out);
    read_lengths(reader, out);
    if (out.tokens_max == 0) state.fail(bad_value("max_tokens", "max_tokens: expected at least 1, found 0"));
    read_stops(reader, limits, state, out.stops);
    reader.boolean("stream", out.is_stream);
    if (const text::ValueDict* dict = reader.dict("stream_options")) {
        FieldReader stream_options(*dict, "stream_options", state);
        bool include_usage = false;
        stream_options.boolean("include_usage", include_usage);
        stream_options.ignore({"include_obfuscation", "continuous_usage_stats"});
        stream_options.finish();
        if (include_usage) out.usage_chunk = UsageChunk::own;
    }
    int64_t n = 1;
    reader.integer("n", 1, limits.choices, n);
    out.n_choices = static_cast<int>(n);
    reader.string("cache_salt", out.cache_salt);
    reader.string("prompt_cache_key", out.session_hint);
    reader.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_retention", "cache_prompt",
                   "timings_per_token", "return_progress"});
}

engine::Job make_job(const RequestFields& fields, const ServerContext& context, size_t prompt_tokens, int choice) {
    engine::Job job;
    job.sampling = fields.sampling;
    job.sampling.seed = (fields.has_seed ? fields.sampling.seed : random_u64()) + static_cast<uint64_t>(choice);
    const int64_t room = context.backend->info().context_tokens - static_cast<int64_t>(prompt_tokens);
    const int64_t wanted = fields.tokens_max < 0 ? room : std::min(fields.tokens_max, room);
    job.max_tokens = static_cast<int32_t>(std::max<int64_t>(wanted, 1));
    if (fields.eos == EosPolicy::stop) job.stop_ids = context.stop_ids;
    job.stop_strings = fields.stops;
    job.cache_owner = fields.cache_owner;
    job.cache_salt = fields.cache_salt;
    job.session_hint = fields.session_hint;
    job.tools = fields.tools;
    return job;
}

}  // namespace espalier::server
