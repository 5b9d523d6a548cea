// The public boundary of the engine: token ids in, token events out. No tensor type, no JSON and no text template is
// visible here. server/ talks to the abstract Backend, so that its tests can run against a scripted one.
//
// Threads: submit and every JobStream method may be called from any thread. One engine thread owns model state, cache
// and scheduler. What crosses is moved through bounded queues: jobs in (limit EngineOptions::jobs_max), events out (a
// job's queue holds at most its own max_tokens + a few events, so the engine never blocks on a slow reader).
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/tool_outline.h"

namespace espalier::engine {

using TokenId = int32_t;

struct SamplingParams {
    float temperature = 0.0f;  // 0 = greedy, ties to the lowest id
    int32_t top_k = 0;         // 0 = off
    float top_p = 1.0f;        // 1 = off
    float min_p = 0.0f;        // 0 = off
    float repetition_penalty = 1.0f;
    float presence_penalty = 0.0f;
    float frequency_penalty = 0.0f;
    uint64_t seed = 0;  // the random number of position p is a pure function of (seed, p)
    std::vector<std::pair<TokenId, float>> logit_bias;
    int32_t n_logprobs = -1;  // -1 = none, 0 = chosen token only, n = and the n best
};

// A prompt length at which a later request is likely to go on.
struct Boundary {
    enum class Kind {
        before_tool,  // as far as the prompt stays as it is when a tool's result follows
        before_user,  // the same when a user message follows
        message_end,  // a message ends here
    };
    int32_t tokens = 0;
    Kind kind = Kind::before_tool;
    bool operator==(const Boundary&) const = default;
};

struct Job {
    std::vector<TokenId> prompt;
    std::vector<Boundary> boundaries;
    SamplingParams sampling;
    int32_t max_tokens = 0;                 // clamped to the context that is left
    std::vector<TokenId> stop_ids;          // end the reply, not part of it; empty when ignore_eos
    std::vector<std::string> stop_strings;  // end the reply; text before the match is kept
    std::string cache_owner;                // whose cache: nothing is shared between owners, and memory is shared out among them
    std::string cache_salt;                 // conversations with different salts never share cached state
    std::string session_hint;               // what the client calls the conversation; nothing depends on it
    std::vector<text::ToolOutline> tools;   // what calls in the reply may look like: for drafts only
};

enum class FinishReason { stop_id, stop_string, length, cancelled, failed };

enum class CacheSource { none, ram, disk };
const char* to_string(CacheSource source);

// Where drafts come from, as flags and counters spell it.
inline constexpr std::array<const char*, 3> kDraftSources = {"template", "suffix", "mtp"};

struct Timings {
    int32_t prompt_tokens = 0;
    int32_t cached_tokens = 0;  // of prompt_tokens, restored instead of computed
    CacheSource cache_source = CacheSource::none;
    double restore_ms = 0;  // after queue_ms, before prefill_ms
    int32_t output_tokens = 0;
    double queue_ms = 0;
    double prefill_ms = 0;
    double decode_ms = 0;
    int32_t drafted = 0;
    int32_t accepted = 0;
    std::array<int32_t, kDraftSources.size()> drafted_by{};  // a draft of two sources counts for both
    std::array<int32_t, kDraftSources.size()> accepted_by{};
    int32_t rounds = 0;  // forwards after the prompt
};

struct TokenLogprob {
    TokenId token = 0;
    float logprob = 0;
    std::vector<std::pair<TokenId, float>> top;
};

// Why a prompt that looks like an earlier one was read again: where they part, and the ids around that place.
struct CacheMiss {
    int32_t prompt_tokens = 0;
    int32_t cached_tokens = 0;
    int32_t common_tokens = 0;     // leading ids equal to an earlier timeline's
    int32_t earlier_tokens = 0;    // how long that timeline is
    std::vector<TokenId> before;   // the common ids just before they part
    std::vector<TokenId> earlier;  // how the earlier timeline went on
    std::vector<TokenId> now;      // how this prompt goes on
};

struct JobEvent {
    enum class Kind {
        prefill_progress,  // prompt_done of timings.prompt_tokens; the first one carries cached_tokens, and cache_miss if any
        tokens,            // newly committed ids, in order; never a stop id
        finished,          // last event; reason and timings; kept_text_bytes if a stop string matched
        failed,            // last event; error
    };
    Kind kind = Kind::tokens;
    std::vector<TokenId> tokens;
    std::vector<TokenLogprob> logprobs;  // one per token if asked for
    int32_t prompt_done = 0;
    std::shared_ptr<const CacheMiss> cache_miss;
    FinishReason reason = FinishReason::length;
    Timings timings;
    // The reply's detokenised text (special tokens as text) up to the first stop string, in bytes; -1 = all of it.
    int64_t kept_text_bytes = -1;
    Error error;
};

// The events of one job. Created by the backend, shared by the producer (engine thread) and one consumer.
class JobStream {
public:
    // Consumer side. try_next: the next event if one is there. wait_next: blocks up to timeout_ms. After `finished` or
    // `failed` both return nothing for ever.
    std::optional<JobEvent> try_next();
    std::optional<JobEvent> wait_next(int timeout_ms);
    // Called from the producer's thread after each push (once at once if events are waiting). Must be quick and must not
    // call back into this stream; typically posts to an executor. Replaces an earlier one; empty = none.
    void set_notify(std::function<void()> notify);
    // The job ends within one step with reason `cancelled`, in every phase. Idempotent.
    void cancel();
    // Consumer-side fact: the last event was taken.
    bool is_done() const;

    // Producer side.
    void push(JobEvent event);
    bool is_cancelled() const;

private:
    mutable std::mutex mutex_;
    std::condition_variable ready_;
    std::deque<JobEvent> events_;
    std::function<void()> notify_;
    bool done_ = false;
    bool cancelled_ = false;
};

// What a server may show about the loaded model. Fixed after load.
struct BackendInfo {
    std::string model_name;
    std::string acts;  // numerics mode in force
    std::string kv_type;
    std::string isa;  // kernel tier
    int32_t n_threads = 0;
    int32_t context_tokens = 0;
    int32_t sequences_max = 0;
    int64_t weight_bytes = 0;
    std::vector<std::pair<std::string, std::string>> details;  // for /props, in order
};

// Gauges, sampled at the call.
struct BackendGauges {
    int32_t jobs_queued = 0;
    int32_t jobs_running = 0;
    int64_t cache_bytes = 0;  // in use: pages, states, index
    int64_t cache_budget_bytes = 0;
    int64_t cache_page_bytes = 0;   // of snapshots, each page once
    int64_t cache_state_bytes = 0;  // of snapshots
    int64_t cache_index_bytes = 0;
    int64_t cache_snapshots = 0;
    int64_t cache_evictions_total = 0;
    int64_t cache_hits_total = 0;    // requests that went on from a snapshot
    int64_t cache_misses_total = 0;  // requests that had to read again what an earlier one had read
    bool has_disk = false;
    bool is_disk_writing = false;  // false: full or read-only
    int64_t disk_bytes = 0;
    int64_t disk_budget_bytes = 0;
    int64_t disk_conversations = 0;
    int64_t disk_entries = 0;
    int64_t disk_writes_pending = 0;
    int64_t disk_writes_total = 0;
    int64_t disk_page_bytes_written_total = 0;
    int64_t disk_state_bytes_written_total = 0;
    int64_t disk_reads_total = 0;
    int64_t prompt_tokens_total = 0;
    int64_t cached_tokens_total = 0;
    int64_t output_tokens_total = 0;
};

class Backend {
public:
    virtual ~Backend() = default;
    // Queues a job. Errors: invalid_input (empty prompt, id outside the vocabulary), exhausted with "exceeds the available
    // context size" when the prompt does not fit, exhausted with "queue is full" when jobs_max jobs wait.
    virtual Result<std::shared_ptr<JobStream>> submit(Job job) = 0;
    virtual const BackendInfo& info() const = 0;
    virtual BackendGauges gauges() const = 0;
    // The latest misses of a cache owner, newest first. A backend without a cache has none.
    virtual std::vector<std::shared_ptr<const CacheMiss>> cache_misses(const std::string&) const { return {}; }
};

}  // namespace espalier::engine
