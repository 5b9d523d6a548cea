// The fields that chat completions and completions share: sampling, lengths, stops, streaming, identity.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/http_types.h"
#include "server/json_fields.h"
#include "server/options.h"

namespace espalier::server {

enum class EosPolicy { stop, ignore };
enum class UsageChunk { with_last, own };  // own: stream_options.include_usage, one more chunk after the last choice

struct RequestFields {
    std::string model;
    engine::SamplingParams sampling;
    bool has_seed = false;
    int64_t tokens_max = -1;  // -1 = what the context leaves
    EosPolicy eos = EosPolicy::stop;
    std::vector<std::string> stops;
    bool is_stream = false;
    UsageChunk usage_chunk = UsageChunk::with_last;
    int n_choices = 1;
    std::string cache_owner;  // see identify_client()
    std::string cache_salt;
    std::string session_hint;
    std::vector<text::ToolOutline> tools;
};

void read_request_fields(FieldReader& reader, const ServerLimits& limits, const SamplingDefaults& defaults, ReadState& state,
                         RequestFields& out);

// The job of choice number `choice`: everything but the prompt. A request without a seed gets a random one.
engine::Job make_job(const RequestFields& fields, const ServerContext& context, size_t prompt_tokens, int choice);

}  // namespace espalier::server
