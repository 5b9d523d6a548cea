// The engine thread: admits jobs, runs steps, reports events.
//
// A job is admitted when a sequence slot is free and the pages it may come to need would fit if nothing were cached beside the
// running jobs. Room for its prompt is made at once, by giving up snapshots but not the one it goes on from; room for a long
// reply as it grows. So a running job never fails for memory, a prefill cannot push out its own prefix, and a client that allows
// itself a long reply costs no cache until it gets one. A job whose beginning is just being read by another waits for that
// snapshot.
#include "engine/local_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <thread>

#include "base/check.h"
#include "cache/conversation_cache.h"
#include "decode/merged_drafts.h"
#include "decode/step_loop.h"
#include "engine/disk_identity.h"
#include "engine/load.h"
#include "engine/memory_plan.h"
#include "engine/row_cost.h"
#include "engine/warm_up.h"

namespace espalier::engine {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

// A step should not take longer than this, so that a client that leaves is noticed; shorter while others wait for tokens.
constexpr double kStepMs = 700;
constexpr double kStepMsShared = 200;
// Reply tokens that room is made for at once.
constexpr int32_t kReplyTokensAtOnce = 512;
// A prefill that was broken off is kept if it read this much, and a job waits for another's prefill if that saves this much.
constexpr int32_t kWorthTokens = 256;
// An earlier prompt of which more than this had to be read again is a miss.
constexpr int32_t kMissTokens = 64;
constexpr int32_t kBoundarySlack = 8;  // the tree's boundaries may lie this far before the place where prompts part
constexpr size_t kMissesKept = 8;      // of an owner
constexpr size_t kMissOwnersMax = 64;
constexpr auto kIdleBeforeWriting = std::chrono::seconds(2);
constexpr int64_t kFinishWritingMs = 5000;
constexpr int32_t kMissContext = 24;  // ids shown around that place

struct QueuedJob {
    Job job;
    std::shared_ptr<JobStream> stream;
    Clock::time_point submitted;
};

struct RunningJob {
    std::shared_ptr<JobStream> stream;
    cache::CacheKey key;
    CacheSource source = CacheSource::none;
    decode::Generation generation;
    std::vector<cache::Point> points;  // snapshots of the prompt, to come and taken
    int64_t pages_needed = 0;          // that the whole job may hold
    Clock::time_point submitted;
    Clock::time_point admitted;
    Clock::time_point restored;
    Clock::time_point first_token;
    bool has_echo = false;  // the client sends replies back as they were produced
    size_t reported = 0;    // reply tokens already sent
    bool has_token = false;
};

cache::PointKind to_point_kind(Boundary::Kind kind) {
    switch (kind) {
        case Boundary::Kind::before_tool: return cache::PointKind::tool_boundary;
        case Boundary::Kind::before_user: return cache::PointKind::user_boundary;
        case Boundary::Kind::message_end: break;
    }
    return cache::PointKind::message_end;
}

std::vector<cache::Point> to_points(const std::vector<Boundary>& boundaries) {
    std::vector<cache::Point> points;
    points.reserve(boundaries.size());
    for (const Boundary& boundary : boundaries) points.push_back({boundary.tokens, to_point_kind(boundary.kind)});
    return points;
}

// What to tell about a prompt that had to be read again although an earlier one began alike; null if that is as it should be.
std::shared_ptr<const CacheMiss> describe_miss(const cache::PrefixTree::Match& match, std::span<const TokenId> prompt) {
    const auto n_prompt = static_cast<int32_t>(prompt.size());
    const int32_t earlier = match.known < n_prompt ? match.deepest : match.known;
    if (earlier - match.cached <= kMissTokens) return nullptr;
    if (match.node != nullptr && match.known - match.cached <= kBoundarySlack) {
        const cache::PointKind kind = cache::PrefixTree::kind(*match.node);
        if (kind == cache::PointKind::tool_boundary || kind == cache::PointKind::user_boundary) return nullptr;
    }
    auto miss = std::make_shared<CacheMiss>();
    miss->prompt_tokens = n_prompt;
    miss->cached_tokens = match.cached;
    miss->common_tokens = match.known;
    miss->earlier_tokens = earlier;
    const int32_t begin = std::max(0, match.known - kMissContext);
    const int32_t end = std::min(n_prompt, match.known + kMissContext);
    miss->before.assign(prompt.begin() + begin, prompt.begin() + match.known);
    miss->now.assign(prompt.begin() + match.known, prompt.begin() + end);
    miss->earlier = match.goes_on;
    return miss;
}

int32_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
    const size_t n = std::min(a.size(), b.size());
    return static_cast<int32_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
                                a.begin());
}

decode::GenerationParams to_params(const Job& job, int32_t max_tokens) {
    decode::GenerationParams params;
    const SamplingParams& s = job.sampling;
    params.sampling = {s.temperature,       s.top_k, s.top_p,     s.min_p, s.repetition_penalty, s.presence_penalty,
                       s.frequency_penalty, s.seed,  s.logit_bias};
    params.max_tokens = max_tokens;
    params.stop_ids = job.stop_ids;
    params.stop_strings = job.stop_strings;
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
        : loaded_(std::move(loaded)), tokenizer_(std::move(tokenizer)), options_(options), plan_(plan) {}

    ~Impl() {
        {
            std::lock_guard lock(mutex_);
            is_stopping_ = true;
        }
        wake_.notify_all();
        if (thread_.joinable()) thread_.join();
        cache_.reset();  // its writer thread wakes this engine
    }

    Status start() {
        TRY_ASSIGN(cache::Memory memory, cache::Memory::create(loaded_.model->state_shape(), {plan_.n_pages, plan_.n_states}));
        memory_ = std::make_unique<cache::Memory>(std::move(memory));
        const auto clock = [] {
            return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
        };
        cache_.emplace(*memory_,
                       cache::ConversationCache::Options{plan_.conversation_bytes, plan_.snapshots_max, clock, open_store()});
        model::PassLimits limits;
        limits.rows_max = RowCost::kRowsMax;
        limits.segments_max = options_.sequences_max;
        limits.context_tokens = plan_.context_tokens;
        TRY_ASSIGN(forward_, model::Forward::create(*loaded_.model, *memory_, *loaded_.pool, limits));
        TRY_ASSIGN(loop_, decode::StepLoop::create(*forward_, vocab_usable()));
        TRY(start_drafting());
        cache_->set_ms_per_token(row_cost_.ms());
        TRY(run_self_test(*forward_, *memory_, options_.self_test));
        describe();
        update_gauges();
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

    std::vector<std::shared_ptr<const CacheMiss>> cache_misses(const std::string& owner) const {
        std::lock_guard lock(mutex_);
        const auto found = misses_.find(owner);
        if (found == misses_.end()) return {};
        return {found->second.rbegin(), found->second.rend()};
    }

    const BackendInfo& info() const { return info_; }
    const std::vector<TokenId>& eos_ids() const { return loaded_.model->eos_ids(); }

private:
    // The store behind the cache, or null: an engine runs without one.
    std::unique_ptr<cache::DiskStore> open_store() {
        const DiskOptions& disk = options_.disk;
        if (disk.directory.empty()) return nullptr;
        auto identity = disk_identity(options_.model.path, *loaded_.model, disk.template_hash);
        Result<std::unique_ptr<cache::DiskStore>> store =
            identity ? Result<std::unique_ptr<cache::DiskStore>>(nullptr) : identity.error();
        if (identity) {
            cache::DiskStore::Options options;
            options.directory = disk.directory;
            options.identity = std::move(*identity);
            options.bytes_max = disk.bytes_max;
            options.writes_pending_max = kWritesPendingMax;
            options.log = options_.log;
            store = cache::DiskStore::open(options, *memory_);
        }
        if (!store) {
            options_.log.warning(fmt::format("conversations are not kept on disk: {}", store.error().message));
            return nullptr;
        }
        (*store)->set_on_finished([this] {
            {
                std::lock_guard lock(mutex_);
                has_finished_write_ = true;
            }
            wake_.notify_all();
        });
        return *std::move(store);
    }

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
        info_.details = {{"layers", fmt::format("{}", config.n_layers)},
                         {"hidden", fmt::format("{}", config.hidden)},
                         {"vocab", fmt::format("{}", config.vocab)},
                         {"context_trained", fmt::format("{}", config.context_trained)},
                         {"mtp", loaded_.model->mtp() != nullptr ? "present" : "absent"},
                         {"draft", drafting_->options().text()},
                         {"kv_pages", fmt::format("{}", plan_.n_pages)},
                         {"snapshots_max", fmt::format("{}", plan_.snapshots_max)},
                         {"page_bytes", fmt::format("{}", memory_->pages().slot_bytes())},
                         {"state_bytes", fmt::format("{}", memory_->states().slot_bytes())},
                         {"cache_bytes", fmt::format("{}", plan_.bytes)}};
        gauges_.cache_budget_bytes = plan_.bytes;
    }

    int32_t vocab_usable() const {
        const int32_t vocab = loaded_.model->config().vocab;
        return tokenizer_ ? std::min(vocab, tokenizer_->vocab_size()) : vocab;
    }

    Status start_drafting() {
        decode::Drafting::Parts parts;
        TRY_ASSIGN(parts.options, decode::DraftOptions::parse(options_.draft));
        if (parts.options.has_mtp && !parts.options.is_adaptive && loaded_.model->mtp() == nullptr)
            return unsupported(fmt::format("--draft {}: {} has no MTP head", options_.draft, options_.model.path));
        parts.tokenizer = tokenizer_.get();
        parts.tool_format = options_.tool_format;
        parts.is_measuring = options_.sizes_drafts;
        drafting_.emplace(std::move(parts));
        if (drafting_->options().is_off()) return {};
        if (options_.sizes_drafts) loop_->set_cost_model(&drafting_->cost());
        return drafting_->attach(*forward_, vocab_usable());
    }

    // False: the engine is to stop. Writes conversations to disk when there was nothing else to do for a while; the store's queue
    // is short, so whenever it has finished something there is room for more.
    bool wait_for_work() {
        std::unique_lock lock(mutex_);
        const auto has_work = [this] { return is_stopping_ || !queue_.empty() || !running_.empty(); };
        const auto write_at = Clock::now() + kIdleBeforeWriting;
        bool is_writing = false;
        while (!has_work()) {
            if (cache_->has_unwritten() && !is_writing) is_writing = !wake_.wait_until(lock, write_at, has_work);
            else wake_.wait(lock, [&] { return has_work() || has_finished_write_; });
            if (has_work()) break;
            has_finished_write_ = false;
            lock.unlock();
            cache_->write_behind(cache::ConversationCache::Moment::idle);
            update_gauges();
            lock.lock();
        }
        return !is_stopping_;
    }

    // Thread entry: what a library throws (out of memory) ends the requests it hit, not the process.
    void run() {
        bool is_stopping = false;
        while (!is_stopping) {
            try {
                is_stopping = !wait_for_work();
                if (is_stopping) break;
                drop_cancelled_queued();
                drop_cancelled();
                admit();
                if (!running_.empty()) step();
                update_gauges();
            } catch (const std::exception& e) {
                fail_all(cannot_go_on(e));
            }
        }
        for (RunningJob& job : running_) finish(job, FinishReason::cancelled);
        running_.clear();
        {
            std::lock_guard lock(mutex_);
            for (QueuedJob& job : queue_) push_failed(*job.stream, cancelled("the engine is shutting down"));
            queue_.clear();
        }
        try {
            cache_->finish_writing(kFinishWritingMs);
        } catch (const std::exception& e) {
            options_.log.warning(fmt::format("not every conversation was written to disk: {}", e.what()));
        }
    }

    static Error cannot_go_on(const std::exception& e) {
        return exhausted(fmt::format("the engine could not go on with this request: {}", e.what()));
    }

    static void push_failed(JobStream& stream, Error error) {
        JobEvent event;
        event.kind = JobEvent::Kind::failed;
        event.reason = FinishReason::failed;
        event.error = std::move(error);
        stream.push(std::move(event));
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
            std::optional<QueuedJob> next = take_admissible();
            if (!next) return;
            const std::shared_ptr<JobStream> stream = next->stream;
            try {
                begin(std::move(*next));
            } catch (const std::exception& e) {
                // Not in the queue any more and perhaps not yet among those that run: nobody else would tell the client.
                running_.remove_if([&](const RunningJob& job) { return job.stream == stream; });
                push_failed(*stream, cannot_go_on(e));
            }
        }
    }

    // The first queued job that can begin. One that waits for another's snapshot lets others pass, one that waits for memory does
    // not.
    std::optional<QueuedJob> take_admissible() {
        std::lock_guard lock(mutex_);
        for (auto queued = queue_.begin(); queued != queue_.end(); ++queued) {
            if (waits_for_snapshot(queued->job)) continue;
            if (!can_fit(queued->job)) return std::nullopt;
            QueuedJob next = std::move(*queued);
            queue_.erase(queued);
            return next;
        }
        return std::nullopt;
    }

    // A running job is about to take a snapshot that saves this one much of its prompt.
    bool waits_for_snapshot(const Job& job) const {
        int32_t cached = -1;
        for (const RunningJob& running : running_) {
            if (!running.generation.is_prefilling() || running.key != key_of(job)) continue;
            const int32_t common = common_prefix(running.generation.prompt(), job.prompt);
            for (const cache::Point& point : running.points) {
                if (point.length > common || point.length <= running.generation.sequence().length()) continue;
                if (cached < 0) cached = cache_->match(running.key, job.prompt).cached;
                if (point.length - cached >= kWorthTokens) return true;
            }
        }
        return false;
    }

    static cache::CacheKey key_of(const Job& job) { return {job.cache_owner, job.cache_salt}; }

    static int64_t pages_for(int64_t tokens) { return (tokens + cache::kPageTokens - 1) / cache::kPageTokens; }

    // Pages that the whole job may come to hold, one for drafts beyond its end, and one to copy into.
    int64_t pages_of(const Job& job) const {
        return pages_for(std::min<int64_t>(plan_.context_tokens, static_cast<int64_t>(job.prompt.size()) + job.max_tokens)) + 2;
    }

    // With nothing cached, all running jobs and this one would fit to their last token. One job alone always does.
    bool can_fit(const Job& job) const {
        if (running_.empty()) return true;
        int64_t pages = pages_of(job);
        for (const RunningJob& running : running_) pages += running.pages_needed;
        return pages * static_cast<int64_t>(memory_->pages().slot_bytes()) + cache::index_bytes_max(plan_.conversation_bytes) <=
               plan_.conversation_bytes;
    }

    // The sequence that a job begins with, and room for what its prompt adds. `match` becomes what memory holds then.
    Result<cache::Sequence> restore(const cache::CacheKey& key, const Job& job, cache::PrefixTree::Match& match,
                                    CacheSource& source) {
        const int64_t tokens = static_cast<int64_t>(job.prompt.size()) + std::min(job.max_tokens, kReplyTokensAtOnce);
        const int64_t pages = std::min(pages_of(job), pages_for(tokens) + 2);
        if (auto read = cache_->read_back(key, job.prompt, match.cached, plan_.context_tokens)) {
            source = CacheSource::disk;
            cache_->make_room(pages - read->n_pages() + 1, key.owner, cache_->tree().find(key, read->tokens()));
            return std::move(*read);
        }
        match = cache_->match(key, job.prompt);
        if (!cache_->make_room(pages - match.cached / cache::kPageTokens, key.owner, match.node)) {
            cache_->make_room(pages, key.owner);
            match = cache_->match(key, job.prompt);
        }
        if (match.node == nullptr) return cache::Sequence::create(*memory_, plan_.context_tokens);
        source = CacheSource::ram;
        return cache_->resume(key, job.prompt, *match.node, plan_.context_tokens);
    }

    void begin(QueuedJob queued) {
        Job& job = queued.job;
        const auto admitted = Clock::now();
        const cache::CacheKey key = key_of(job);
        cache_->set_running(static_cast<int32_t>(running_.size()) + 1);
        cache::PrefixTree::Match match = cache_->match(key, job.prompt);
        const auto miss = describe_miss(match, job.prompt);
        CacheSource source = CacheSource::none;
        auto sequence = restore(key, job, match, source);
        if (!sequence) return push_failed(*queued.stream, sequence.error());
        const auto n_prompt = static_cast<int32_t>(job.prompt.size());
        const std::vector<cache::Point> boundaries = to_points(job.boundaries);
        const int32_t branch = match.known < n_prompt && match.known < match.deepest ? match.known : 0;
        std::vector<cache::Point> points = cache::plan_points({n_prompt, sequence->length(), boundaries, branch});
        decode::GenerationParams params = to_params(job, std::min(job.max_tokens, plan_.context_tokens - n_prompt));
        for (const cache::Point& point : points) params.boundaries.push_back(point.length);
        const int64_t pages = pages_of(job);
        running_.push_back({queued.stream, key, source,
                            decode::Generation(std::move(*sequence), std::move(job.prompt), std::move(params), tokenizer_.get()),
                            std::move(points), pages, queued.submitted, admitted, Clock::now(), admitted, match.has_echo});
        decode::Generation& generation = running_.back().generation;
        generation.set_drafts(drafting_->begin({generation.prompt(), generation.params().max_tokens, &job.tools,
                                                generation.params().stop_ids, &generation.sequence()}));
        count_admission(running_.back(), miss);
        report_progress(running_.back(), miss);
        if (!running_.back().generation.needs_first_token()) return;
        loop_->choose_first(running_.back().generation);
        report(running_.back(), Clock::now());
        if (finish_if_done(running_.back())) running_.pop_back();
    }

    void count_admission(const RunningJob& job, const std::shared_ptr<const CacheMiss>& miss) {
        std::lock_guard lock(mutex_);
        gauges_.cache_hits_total += job.generation.cached_tokens() > 0 ? 1 : 0;
        if (!miss) return;
        ++gauges_.cache_misses_total;
        if (!misses_.contains(job.key.owner) && misses_.size() >= kMissOwnersMax) return;
        auto& misses = misses_[job.key.owner];
        misses.push_back(miss);
        if (misses.size() > kMissesKept) misses.pop_front();
    }

    void report_progress(RunningJob& job, std::shared_ptr<const CacheMiss> miss = nullptr) {
        JobEvent event;
        event.kind = JobEvent::Kind::prefill_progress;
        event.cache_miss = std::move(miss);
        event.timings = timings(job);
        event.prompt_done = job.generation.sequence().length();
        job.stream->push(std::move(event));
    }

    void drop_cancelled() {
        for (auto job = running_.begin(); job != running_.end();) {
            if (job->stream->is_cancelled()) {
                keep_unfinished_prefill(*job);
                finish(*job, FinishReason::cancelled);
                job = running_.erase(job);
                cache_->write_behind(cache::ConversationCache::Moment::busy);
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
        const int32_t rows = row_cost_.rows_in(target_ms);
        int32_t rows_before = 0;
        for (const decode::Generation* generation : steps_) rows_before += generation->prompt_left();
        cache_->set_running(static_cast<int32_t>(running_.size()));
        make_room_to_grow(rows);
        const auto begin = Clock::now();
        const Status status = loop_->step(steps_, rows, [this](decode::Generation& generation) { keep_snapshot(generation); });
        const auto end = Clock::now();
        if (!status) return fail_all(status.error());
        int32_t rows_after = 0;
        for (const decode::Generation* generation : steps_) rows_after += generation->prompt_left();
        row_cost_.learn(rows_before - rows_after, rows, ms_between(begin, end));
        cache_->set_ms_per_token(row_cost_.ms());
        for (auto job = running_.begin(); job != running_.end();) {
            report(*job, end);
            job = finish_if_done(*job) ? running_.erase(job) : std::next(job);
        }
    }

    bool finish_if_done(RunningJob& job) {
        if (!job.generation.is_done()) return false;
        const FinishReason reason = to_finish(job.generation.reason());
        if (reason == FinishReason::failed) {
            push_failed(*job.stream, corrupt_data("the model's logits are not finite numbers: damaged weights"));
        } else {
            if (reason == FinishReason::stop_id) keep_reply(job);
            finish(job, reason);
        }
        cache_->write_behind(cache::ConversationCache::Moment::busy);
        return true;
    }

    // Pages that this step may take, and memory of slots that went unused when the balance of pages and states has shifted.
    void make_room_to_grow(int32_t rows) {
        int64_t pages = 0;
        for (const RunningJob& job : running_) {
            const int32_t computed = job.generation.is_prefilling() ? std::min(rows, job.generation.prompt_left()) : 1;
            const int32_t tokens = job.generation.sequence().length() + computed + forward_->limits().tree_nodes_max;
            const int64_t pages_then = std::min(pages_for(tokens), job.pages_needed - 1);
            pages += std::max<int64_t>(0, pages_then - job.generation.sequence().n_pages()) + 1;
            cache_->make_room(pages, job.key.owner);
        }
        memory_->trim_for(pages, 3 * static_cast<int64_t>(running_.size()), plan_.bytes);
    }

    // A step that fails for memory fails every job in it; admission is meant to make this impossible.
    void fail_all(const Error& error) {
        for (RunningJob& job : running_) push_failed(*job.stream, error);
        running_.clear();
    }

    // The sequence stands at one of the job's points.
    void keep_snapshot(decode::Generation& generation) {
        const auto job =
            std::find_if(running_.begin(), running_.end(), [&](RunningJob& r) { return &r.generation == &generation; });
        const int32_t length = generation.sequence().length();
        const auto point =
            std::find_if(job->points.begin(), job->points.end(), [length](const cache::Point& p) { return p.length == length; });
        if (point == job->points.end()) return;
        cache_->keep(job->key, generation.sequence(), point->kind);
        if (generation.is_prefilling()) return;
        cache_->remember(job->key, generation.prompt(), cache::PrefixTree::Mark::prompt_end);
        std::vector<int32_t> ladder;
        for (const cache::Point& p : job->points) {
            if (p.kind == cache::PointKind::ladder) ladder.push_back(p.length);
        }
        cache_->thin(job->key, generation.prompt(), ladder);
    }

    // A client that gave up during a long prompt often sends it again.
    void keep_unfinished_prefill(const RunningJob& job) {
        const cache::Sequence& sequence = job.generation.sequence();
        if (job.generation.is_prefilling() && sequence.length() - job.generation.cached_tokens() >= kWorthTokens)
            cache_->keep(job.key, sequence, cache::PointKind::ladder);
    }

    // The ids of a whole reply, to see whether the client sends it back as it is; if it did before, then a snapshot as well.
    void keep_reply(const RunningJob& job) {
        if (job.generation.reply().empty()) return;
        std::vector<TokenId> ids(job.generation.prompt().begin(), job.generation.prompt().end());
        ids.insert(ids.end(), job.generation.reply().begin(), job.generation.reply().end());
        const cache::Sequence& sequence = job.generation.sequence();
        if (job.has_echo && std::ranges::equal(sequence.tokens(), ids))
            cache_->keep(job.key, sequence, cache::PointKind::reply_end);
        cache_->remember(job.key, ids, cache::PrefixTree::Mark::reply_end);
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
        t.cache_source = job.source;
        t.restore_ms = ms_between(job.admitted, job.restored);
        t.output_tokens = static_cast<int32_t>(job.generation.reply().size());
        t.queue_ms = ms_between(job.submitted, job.admitted);
        t.prefill_ms = ms_between(job.restored, job.has_token ? job.first_token : now);
        t.decode_ms = job.has_token ? ms_between(job.first_token, now) : 0;
        t.rounds = job.generation.rounds;
        const decode::DraftCounts& drafts = job.generation.draft_counts;
        t.drafted = static_cast<int32_t>(drafts.drafted);
        t.accepted = static_cast<int32_t>(drafts.accepted);
        for (size_t source = 0; source < kDraftSources.size(); ++source) {
            t.drafted_by[source] = static_cast<int32_t>(drafts.drafted_by[source]);
            t.accepted_by[source] = static_cast<int32_t>(drafts.accepted_by[source]);
        }
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
        const cache::ConversationCache::Gauges cache = cache_->gauges();
        const int64_t pages = memory_->pages().n_slots() - memory_->pages().n_free();
        const int64_t states = memory_->states().n_slots() - memory_->states().n_free();
        std::lock_guard lock(mutex_);
        gauges_.jobs_running = static_cast<int32_t>(running_.size());
        gauges_.cache_bytes = pages * static_cast<int64_t>(memory_->pages().slot_bytes()) +
                              states * static_cast<int64_t>(memory_->states().slot_bytes()) + cache.tree.index_bytes;
        gauges_.cache_page_bytes = cache.tree.page_bytes;
        gauges_.cache_state_bytes = cache.tree.state_bytes;
        gauges_.cache_index_bytes = cache.tree.index_bytes;
        gauges_.cache_snapshots = cache.tree.snapshots;
        gauges_.cache_evictions_total = cache.evictions;
        if (!cache.store) return;
        gauges_.has_disk = true;
        gauges_.is_disk_writing = cache.store->is_writing;
        gauges_.disk_bytes = cache.store->bytes;
        gauges_.disk_budget_bytes = cache.store->bytes_max;
        gauges_.disk_conversations = cache.store->conversations;
        gauges_.disk_entries = cache.store->entries;
        gauges_.disk_writes_pending = cache.store->writes_pending;
        gauges_.disk_writes_total = cache.store->writes_finished;
        gauges_.disk_page_bytes_written_total = cache.store->page_bytes_written;
        gauges_.disk_state_bytes_written_total = cache.store->state_bytes_written;
        gauges_.disk_reads_total = cache.disk_reads;
    }

    LoadedModel loaded_;
    std::shared_ptr<const text::Tokenizer> tokenizer_;
    EngineOptions options_;
    MemoryPlan plan_;
    BackendInfo info_;

    // Engine thread only. Order matters: sequences and snapshots release into memory_.
    std::unique_ptr<cache::Memory> memory_;
    std::optional<cache::ConversationCache> cache_;
    std::unique_ptr<model::Forward> forward_;
    std::optional<decode::Drafting> drafting_;
    std::unique_ptr<decode::StepLoop> loop_;
    std::list<RunningJob> running_;
    std::vector<decode::Generation*> steps_;
    RowCost row_cost_;

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<QueuedJob> queue_;                                                 // guarded by mutex_
    BackendGauges gauges_;                                                        // guarded by mutex_
    std::map<std::string, std::deque<std::shared_ptr<const CacheMiss>>> misses_;  // by owner, newest last; guarded by mutex_
    bool is_stopping_ = false;                                                    // guarded by mutex_
    bool has_finished_write_ = false;                                             // of the disk store; guarded by mutex_
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
std::vector<std::shared_ptr<const CacheMiss>> LocalEngine::cache_misses(const std::string& owner) const {
    return impl_->cache_misses(owner);
}
const std::vector<TokenId>& LocalEngine::eos_ids() const {
    return impl_->eos_ids();
}

}  // namespace espalier::engine
