// The engine thread: admits jobs, runs steps, reports events.
//
// A job is admitted when a sequence slot is free and the pages it may come to need are promised to it. Kept snapshots give way to
// it, oldest first, but not the one it continues from, and only if that lets it in. Snapshots are taken while the promises stay
// covered. So a running job never fails for memory, a prefill cannot push out its own prefix, and a job that waits costs no
// cache.
#include "engine/local_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <list>
#include <thread>

#include "base/check.h"
#include "cache/snapshot_store.h"
#include "decode/step_loop.h"
#include "engine/load.h"
#include "engine/memory_plan.h"

namespace espalier::engine {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

// Prompt rows of one pass: the weights are read once for all of them; beyond this the gain is small and steps get long.
constexpr int32_t kRowsMax = 512;
constexpr int32_t kRowsLeast = 16;
// A step should not take longer than this, so that a client that leaves is noticed; shorter while others wait for tokens.
constexpr double kStepMs = 700;
constexpr double kStepMsShared = 200;

struct QueuedJob {
    Job job;
    std::shared_ptr<JobStream> stream;
    Clock::time_point submitted;
};

struct RunningJob {
    std::shared_ptr<JobStream> stream;
    std::string cache_salt;
    decode::Generation generation;
    int64_t pages_needed = 0;  // that the whole job may hold
    Clock::time_point submitted;
    Clock::time_point admitted;
    Clock::time_point first_token;
    size_t reported = 0;  // reply tokens already sent
    bool has_token = false;
};

decode::GenerationParams to_params(const Job& job, int32_t max_tokens) {
    decode::GenerationParams params;
    const SamplingParams& s = job.sampling;
    params.sampling = {s.temperature,       s.top_k, s.top_p,     s.min_p, s.repetition_penalty, s.presence_penalty,
                       s.frequency_penalty, s.seed,  s.logit_bias};
    params.max_tokens = max_tokens;
    params.stop_ids = job.stop_ids;
    params.stop_strings = job.stop_strings;
    params.boundaries = job.stable_boundaries;
    params.n_logprobs = s.n_logprobs;
    return params;
}

FinishReason to_finish(decode::EndReason reason) {
    switch (reason) {
        case decode::EndReason::stop_id: return FinishReason::stop_id;
        case decode::EndReason::stop_string: return FinishReason::stop_string;
        case decode::EndReason::broken: return FinishReason::failed;
        case decode::EndReason::length:
        case decode::EndReason::none: break;
    }
    return FinishReason::length;
}

}  // namespace

class LocalEngine::Impl {
public:
    Impl(LoadedModel loaded, std::shared_ptr<const text::Tokenizer> tokenizer, const EngineOptions& options,
         const MemoryPlan& plan)
        : loaded_(std::move(loaded)),
          tokenizer_(std::move(tokenizer)),
          options_(options),
          plan_(plan),
          store_(plan.snapshots_max) {}

    ~Impl() {
        {
            std::lock_guard lock(mutex_);
            is_stopping_ = true;
        }
        wake_.notify_all();
        if (thread_.joinable()) thread_.join();
    }

    Status start() {
        TRY_ASSIGN(cache::Memory memory, cache::Memory::create(loaded_.model->state_shape(), {plan_.n_pages, plan_.n_states}));
        memory_ = std::make_unique<cache::Memory>(std::move(memory));
        model::PassLimits limits;
        limits.rows_max = kRowsMax;
        limits.segments_max = options_.sequences_max;
        limits.context_tokens = plan_.context_tokens;
        TRY_ASSIGN(forward_, model::Forward::create(*loaded_.model, *memory_, *loaded_.pool, limits));
        const int32_t vocab = loaded_.model->config().vocab;
        TRY_ASSIGN(loop_, decode::StepLoop::create(*forward_, tokenizer_ ? std::min(vocab, tokenizer_->vocab_size()) : vocab));
        describe();
        steps_.reserve(static_cast<size_t>(options_.sequences_max));
        thread_ = std::thread([this] { run(); });
        return {};
    }

    Result<std::shared_ptr<JobStream>> submit(Job job) {
        if (job.prompt.empty()) return invalid_input("the prompt is empty");
        for (const TokenId id : job.prompt) {
            if (id < 0 || id >= loaded_.model->config().vocab) {
                return invalid_input(
                    fmt::format("token id {} is outside the vocabulary of {}", id, loaded_.model->config().vocab));
            }
        }
        const auto length = static_cast<int64_t>(job.prompt.size());
        if (length >= plan_.context_tokens) {
            return exhausted(fmt::format(
                "prompt is too long: it has {} tokens and exceeds the available context size of {} tokens; shorten it "
                "or start with a larger --ctx (trained for {})",
                length, plan_.context_tokens, loaded_.model->config().context_trained));
        }
        TRY(decode::check_params(to_params(job, 1).sampling));
        if (job.max_tokens < 1) return invalid_input(fmt::format("max_tokens is {}, expected at least 1", job.max_tokens));
        if (!job.stop_strings.empty() && !tokenizer_) return unsupported("stop strings need a tokenizer, and none is loaded");
        auto stream = std::make_shared<JobStream>();
        {
            std::lock_guard lock(mutex_);
            if (static_cast<int32_t>(queue_.size()) >= options_.jobs_max) {
                return exhausted(fmt::format("the queue is full: {} requests wait; try again later", queue_.size()));
            }
            queue_.push_back({std::move(job), stream, Clock::now()});
        }
        wake_.notify_all();
        return stream;
    }

    BackendGauges gauges() const {
        std::lock_guard lock(mutex_);
        BackendGauges gauges = gauges_;
        gauges.jobs_queued = static_cast<int32_t>(queue_.size());
        return gauges;
    }

    const BackendInfo& info() const { return info_; }
    const std::vector<TokenId>& eos_ids() const { return loaded_.model->eos_ids(); }

private:
    void describe() {
        const model::ModelConfig& config = loaded_.model->config();
        info_.model_name = options_.model.path;
        info_.acts = to_string(loaded_.model->acts());
        info_.kv_type = to_string(loaded_.model->state_shape().kv);
        info_.isa = kernels::to_string(loaded_.model->kernels().isa);
        info_.n_threads = loaded_.pool->n_threads();
        info_.context_tokens = plan_.context_tokens;
        info_.sequences_max = options_.sequences_max;
        info_.weight_bytes = static_cast<int64_t>(loaded_.model->weight_bytes());
        info_.details = {
            {"layers", fmt::format("{}", config.n_layers)}, {"hidden", fmt::format("{}", config.hidden)},
            {"vocab", fmt::format("{}", config.vocab)},     {"mtp", loaded_.model->mtp() != nullptr ? "present" : "absent"},
            {"kv_pages", fmt::format("{}", plan_.n_pages)}, {"snapshots_max", fmt::format("{}", plan_.snapshots_max)},
            {"cache_bytes", fmt::format("{}", plan_.bytes)}};
        gauges_.cache_budget_bytes = plan_.bytes;
    }

    bool wait_for_work() {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return is_stopping_ || !queue_.empty() || !running_.empty(); });
        return !is_stopping_;
    }

    // Thread entry: what a library throws (out of memory) ends the requests it hit, not the process.
    void run() {
        while (wait_for_work()) {
            try {
                drop_cancelled_queued();
                drop_cancelled();
                admit();
                if (!running_.empty()) step();
                update_gauges();
            } catch (const std::exception& e) {
                fail_all(exhausted(fmt::format("the engine could not go on with this request: {}", e.what())));
            }
        }
        for (RunningJob& job : running_) finish(job, FinishReason::cancelled);
        running_.clear();
        std::lock_guard lock(mutex_);
        for (QueuedJob& job : queue_) push_failed(*job.stream, cancelled("the engine is shutting down"));
        queue_.clear();
    }

    static void push_failed(JobStream& stream, Error error) {
        JobEvent event;
        event.kind = JobEvent::Kind::failed;
        event.reason = FinishReason::failed;
        event.error = std::move(error);
        stream.push(std::move(event));
    }

    // Pages that running jobs may still ask for: to grow, and one to copy a page that a snapshot shares.
    int64_t promised_pages() const {
        int64_t pages = 0;
        for (const RunningJob& job : running_)
            pages += std::max<int64_t>(0, job.pages_needed - job.generation.sequence().n_pages()) + 1;
        return pages;
    }

    static void push_cancelled(const QueuedJob& queued) {
        JobEvent event;
        event.kind = JobEvent::Kind::finished;
        event.reason = FinishReason::cancelled;
        event.timings.prompt_tokens = static_cast<int32_t>(queued.job.prompt.size());
        event.timings.queue_ms = ms_between(queued.submitted, Clock::now());
        queued.stream->push(std::move(event));
    }

    void drop_cancelled_queued() {
        std::lock_guard lock(mutex_);
        std::erase_if(queue_, [](const QueuedJob& queued) {
            if (!queued.stream->is_cancelled()) return false;
            push_cancelled(queued);
            return true;
        });
    }

    void admit() {
        while (static_cast<int32_t>(running_.size()) < options_.sequences_max) {
            QueuedJob queued;
            {
                std::lock_guard lock(mutex_);
                if (queue_.empty() || !make_room(queue_.front().job)) return;
                queued = std::move(queue_.front());
                queue_.pop_front();
            }
            begin(std::move(queued));
        }
    }

    static int64_t pages_of(const Job& job, int32_t context) {
        const int64_t tokens = std::min<int64_t>(context, static_cast<int64_t>(job.prompt.size()) + job.max_tokens);
        return (tokens + cache::kPageTokens - 1) / cache::kPageTokens;
    }

    // Frees the pages the job needs by dropping snapshots. False: it has to wait for a running job, and nothing was dropped.
    bool make_room(const Job& job) {
        const int32_t prefix = store_.find_longest(job.prompt, job.cache_salt);
        const int64_t prefix_pages = prefix / cache::kPageTokens;  // shared with the snapshot; its partial page is copied
        const int64_t needed = pages_of(job, plan_.context_tokens) - prefix_pages + 2;
        const int64_t promised = promised_pages();
        int64_t held = prefix > 0 ? prefix_pages + 1 : 0;
        for (const RunningJob& running : running_) held += running.generation.sequence().n_pages();
        const bool can_fit = memory_->pages().n_slots() - held - promised >= needed;
        if (!can_fit && !running_.empty()) return false;
        const int32_t n_kept = can_fit && prefix > 0 ? 1 : 0;
        while (memory_->pages().n_free() - promised < needed && store_.size() > n_kept) store_.drop_oldest();
        return true;
    }

    void begin(QueuedJob queued) {
        Job& job = queued.job;
        const auto now = Clock::now();
        auto sequence = store_.restore_longest(job.prompt, job.cache_salt);
        if (!sequence) {
            auto fresh = cache::Sequence::create(*memory_, plan_.context_tokens);
            if (!fresh) return push_failed(*queued.stream, fresh.error());
            sequence = std::move(*fresh);
        }
        const int64_t pages = pages_of(job, plan_.context_tokens);
        const int32_t room = plan_.context_tokens - static_cast<int32_t>(job.prompt.size());
        decode::GenerationParams params = to_params(job, std::min(job.max_tokens, room));
        running_.push_back({queued.stream, job.cache_salt,
                            decode::Generation(std::move(*sequence), std::move(job.prompt), std::move(params), tokenizer_.get()),
                            pages, queued.submitted, now, now});
        report_progress(running_.back());
    }

    void report_progress(RunningJob& job) {
        JobEvent event;
        event.kind = JobEvent::Kind::prefill_progress;
        event.timings = timings(job);
        event.prompt_done = job.generation.sequence().length();
        job.stream->push(std::move(event));
    }

    void drop_cancelled() {
        for (auto job = running_.begin(); job != running_.end();) {
            if (job->stream->is_cancelled()) {
                finish(*job, FinishReason::cancelled);
                job = running_.erase(job);
            } else {
                ++job;
            }
        }
    }

    void step() {
        steps_.clear();
        bool is_prefilling = false;
        for (RunningJob& job : running_) {
            steps_.push_back(&job.generation);
            is_prefilling = is_prefilling || job.generation.is_prefilling();
        }
        const double target_ms = running_.size() > 1 ? kStepMsShared : kStepMs;
        const int32_t rows = std::clamp(static_cast<int32_t>(target_ms / ms_per_row_), kRowsLeast, kRowsMax);
        int32_t rows_before = 0;
        for (const decode::Generation* generation : steps_) rows_before += generation->prompt_left();
        const auto begin = Clock::now();
        const Status status = loop_->step(steps_, rows, [this](decode::Generation& generation) { keep_snapshot(generation); });
        const auto end = Clock::now();
        if (!status) return fail_all(status.error());
        int32_t rows_after = 0;
        for (const decode::Generation* generation : steps_) rows_after += generation->prompt_left();
        if (rows_before - rows_after >= kRowsLeast)
            ms_per_row_ = std::max(1e-3, ms_between(begin, end) / (rows_before - rows_after));
        for (auto job = running_.begin(); job != running_.end();) {
            report(*job, end);
            if (job->generation.is_done()) {
                const FinishReason reason = to_finish(job->generation.reason());
                if (reason == FinishReason::failed)
                    push_failed(*job->stream, corrupt_data("the model's logits are not finite numbers: damaged weights"));
                else finish(*job, reason);
                job = running_.erase(job);
            } else {
                ++job;
            }
        }
    }

    // A step that fails for memory fails every job in it; admission is meant to make this impossible.
    void fail_all(const Error& error) {
        for (RunningJob& job : running_) push_failed(*job.stream, error);
        running_.clear();
    }

    // A snapshot in the middle of a page makes the sequence copy that page when it goes on: one page beyond what is promised.
    void keep_snapshot(decode::Generation& generation) {
        while (memory_->pages().n_free() - promised_pages() < 1) {
            if (!store_.drop_oldest()) return;
        }
        for (const RunningJob& job : running_) {
            if (&job.generation == &generation) store_.keep(generation.sequence(), job.cache_salt);
        }
    }

    void report(RunningJob& job, Clock::time_point now) {
        if (job.generation.reply().empty() && !job.generation.is_done()) return report_progress(job);
        if (!job.has_token) {
            job.has_token = true;
            job.first_token = now;
        }
        const auto reply = job.generation.reply().subspan(job.reported);
        if (reply.empty()) return;
        JobEvent event;
        event.kind = JobEvent::Kind::tokens;
        event.tokens.assign(reply.begin(), reply.end());
        if (job.generation.params().n_logprobs >= 0) {
            for (size_t i = 0; i < reply.size(); ++i) {
                const auto& row = job.generation.logprobs()[job.reported + i];
                TokenLogprob entry{row.front().token, row.front().logprob, {}};
                for (size_t k = 1; k < row.size(); ++k) entry.top.emplace_back(row[k].token, row[k].logprob);
                event.logprobs.push_back(std::move(entry));
            }
        }
        job.reported += reply.size();
        job.stream->push(std::move(event));
    }

    Timings timings(const RunningJob& job) const {
        const auto now = Clock::now();
        Timings t;
        t.prompt_tokens = static_cast<int32_t>(job.generation.prompt().size());
        t.cached_tokens = job.generation.cached_tokens();
        t.output_tokens = static_cast<int32_t>(job.generation.reply().size());
        t.queue_ms = ms_between(job.submitted, job.admitted);
        t.prefill_ms = ms_between(job.admitted, job.has_token ? job.first_token : now);
        t.decode_ms = job.has_token ? ms_between(job.first_token, now) : 0;
        t.rounds = job.generation.rounds;
        return t;
    }

    void finish(RunningJob& job, FinishReason reason) {
        JobEvent event;
        event.kind = JobEvent::Kind::finished;
        event.reason = reason;
        event.timings = timings(job);
        event.kept_text_bytes = job.generation.kept_text_bytes();
        {
            std::lock_guard lock(mutex_);
            gauges_.prompt_tokens_total += event.timings.prompt_tokens;
            gauges_.cached_tokens_total += event.timings.cached_tokens;
            gauges_.output_tokens_total += event.timings.output_tokens;
        }
        job.stream->push(std::move(event));
    }

    void update_gauges() {
        const int64_t pages = memory_->pages().n_slots() - memory_->pages().n_free();
        const int64_t states = memory_->states().n_slots() - memory_->states().n_free();
        std::lock_guard lock(mutex_);
        gauges_.jobs_running = static_cast<int32_t>(running_.size());
        gauges_.cache_bytes = pages * static_cast<int64_t>(memory_->pages().slot_bytes()) +
                              states * static_cast<int64_t>(memory_->states().slot_bytes());
    }

    LoadedModel loaded_;
    std::shared_ptr<const text::Tokenizer> tokenizer_;
    EngineOptions options_;
    MemoryPlan plan_;
    BackendInfo info_;

    // Engine thread only. Order matters: sequences and snapshots release into memory_.
    std::unique_ptr<cache::Memory> memory_;
    cache::SnapshotStore store_;
    std::unique_ptr<model::Forward> forward_;
    std::unique_ptr<decode::StepLoop> loop_;
    std::list<RunningJob> running_;
    std::vector<decode::Generation*> steps_;
    double ms_per_row_ = kStepMs / kRowsLeast;  // until measured: short steps

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<QueuedJob> queue_;  // guarded by mutex_
    BackendGauges gauges_;         // guarded by mutex_
    bool is_stopping_ = false;     // guarded by mutex_
    std::thread thread_;
};

Result<std::unique_ptr<LocalEngine>> LocalEngine::start(const EngineOptions& options,
                                                        std::shared_ptr<const text::Tokenizer> tokenizer) {
    if (options.sequences_max < 1 || options.sequences_max > 64) {
        return invalid_input(fmt::format("--parallel is {}, expected 1 to 64", options.sequences_max));
    }
    TRY_ASSIGN(LoadedModel loaded, load_model(options.model));
    MemoryRequest request;
    request.shape = loaded.model->state_shape();
    request.context_trained = loaded.model->config().context_trained;
    request.context_tokens = options.context_tokens;
    request.sequences_max = options.sequences_max;
    request.cache_bytes = options.cache_bytes;
    request.available_bytes = available_memory_bytes();
    TRY_ASSIGN(const MemoryPlan plan, plan_memory(request));
    auto impl = std::make_unique<Impl>(std::move(loaded), std::move(tokenizer), options, plan);
    TRY(impl->start());
    return std::unique_ptr<LocalEngine>(new LocalEngine(std::move(impl)));
}

LocalEngine::LocalEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalEngine::~LocalEngine() = default;
Result<std::shared_ptr<JobStream>> LocalEngine::submit(Job job) {
    return impl_->submit(std::move(job));
}
const BackendInfo& LocalEngine::info() const {
    return impl_->info();
}
BackendGauges LocalEngine::gauges() const {
    return impl_->gauges();
}
const std::vector<TokenId>& LocalEngine::eos_ids() const {
    return impl_->eos_ids();
}

}  // namespace espalier::engine
