// Everything the server reads once at start: addresses, keys, limits, time-outs, and the loaded model it serves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/engine.h"
#include "text/chat_request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tool_format.h"

namespace espalier::server {

struct ServerLimits {
    int connections = 256;
    uint32_t header_bytes = 64 << 10;
    uint64_t body_bytes = 16 << 20;
    int json_depth = 100;
    int object_members = 1024;
    int json_values = 1'000'000;
    int messages = 20'000;
    int tools = 1024;
    int choices = 8;
    int stop_strings = 16;
    int stop_string_bytes = 1024;
    size_t unsent_bytes = 1 << 20;  // above this, a stream waits for its reader
};

struct ServerTimeouts {
    int idle_ms = 75'000;       // between requests on a kept connection
    int header_ms = 15'000;     // from a request's first byte to the end of its header
    int body_ms = 60'000;       // for the whole body
    int write_ms = 30'000;      // without any progress of the reader
    int keep_alive_ms = 5'000;  // a comment goes out when a stream was silent this long
};

enum class KeyPolicy {
    loopback_may_omit,  // no key needed on loopback; a public address without one is refused
    may_omit,           // forced: a public address without a key is accepted
};

struct ServerOptions {
    std::string host = "127.0.0.1";
    uint16_t port = 8080;  // 0 = any free one
    int io_threads = 2;
    int work_threads = 2;  // parse, render and tokenise requests
    KeyPolicy key_policy = KeyPolicy::loopback_may_omit;
    std::vector<std::string> api_keys;         // empty = no key asked for
    std::vector<std::string> allowed_hosts;    // names accepted in Host beside addresses and localhost; "*" = any
    std::vector<std::string> allowed_origins;  // web origins that may post; "*" = any
    ServerLimits limits;
    ServerTimeouts timeouts;
    std::string version;
    Log log;  // receives no prompt or reply text, but at debug level the few words around a cache miss
};

// Sampling fields that a request leaves open (from generation_config.json).
struct SamplingDefaults {
    float temperature = 1.0f;
    int32_t top_k = 0;
    float top_p = 1.0f;
    float min_p = 0.0f;
    float repetition_penalty = 1.0f;
};

enum class ModelNames { any, strict };

// A loaded model, ready to serve. Immutable and shared by all requests; the backend must outlive the server.
struct ServerContext {
    engine::Backend* backend = nullptr;
    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::shared_ptr<const text::ChatTemplate> chat_template;  // null: the model has none, chat answers 400
    text::ToolFormat tool_format;
    std::string alias;  // the model's name in answers
    ModelNames model_names = ModelNames::any;
    text::Thinking thinking = text::Thinking::unspecified;  // for requests that do not say
    std::vector<engine::TokenId> stop_ids;
    SamplingDefaults sampling;
    std::string template_hash;  // for /props
    int64_t created = 0;        // unix seconds
};

}  // namespace espalier::server
