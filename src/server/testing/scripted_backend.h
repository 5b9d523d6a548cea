// A Backend for tests: replays given token ids with given delays and obeys a job as the engine does (stop ids and strings,
// max_tokens, cancel, full queue). Header only and included by tests alone, so it is in no library.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace espalier::server::testing {

struct Script {
    std::vector<engine::TokenId> ids;  // a stop id in it ends the reply if the job has it as one
    int tokens_per_step = 1;
    int prefill_ms = 0;
    int step_ms = 0;
    int32_t cached_tokens = 0;
    std::string failure;  // the job fails with this message after its tokens
    std::shared_ptr<const engine::CacheMiss> cache_miss;
};

class ScriptedBackend : public engine::Backend {
public:
    // chooses a script by job; called from the submitting thread.
    using Chooser = std::function<Script(const engine::Job&)>;

    ScriptedBackend(const text::Tokenizer& tokenizer, int32_t context_tokens) : tokenizer_(tokenizer) {
        info_.model_name = "scripted";
        info_.acts = "a32";
        info_.kv_type = "f32";
        info_.isa = "none";
        info_.context_tokens = context_tokens;
        info_.sequences_max = 8;
    }
    ~ScriptedBackend() override {
        for (std::thread& thread : threads_) thread.join();
    }

    void set_script(Script script) {
        set_chooser([script = std::move(script)](const engine::Job&) { return script; });
    }
    void set_chooser(Chooser chooser) {
        std::lock_guard lock(mutex_);
        chooser_ = std::move(chooser);
    }
    void set_queue_full(bool is_full) { is_full_ = is_full; }

    Result<std::shared_ptr<engine::JobStream>> submit(engine::Job job) override {
        if (job.prompt.empty()) return invalid_input("empty prompt");
        if (is_full_) return exhausted("queue is full");
        std::lock_guard lock(mutex_);
        jobs_.push_back(job);
        auto stream = std::make_shared<engine::JobStream>();
        ++n_running_;
        threads_.emplace_back([this, job = std::move(job), script = chooser_(jobs_.back()), stream] {
            play(job, script, *stream);
            --n_running_;
        });
        return stream;
    }
    const engine::BackendInfo& info() const override { return info_; }
    engine::BackendGauges gauges() const override { return {.jobs_running = n_running_}; }
    // Of the jobs of one owner, newest first.
    std::vector<std::shared_ptr<const engine::CacheMiss>> cache_misses(const std::string& owner) const override {
        std::lock_guard lock(mutex_);
        std::vector<std::shared_ptr<const engine::CacheMiss>> misses;
        for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job) {
            const Script script = chooser_(*job);
            if (job->cache_owner == owner && script.cache_miss) misses.push_back(script.cache_miss);
        }
        return misses;
    }

    std::vector<engine::Job> jobs() const {
        std::lock_guard lock(mutex_);
        return jobs_;
    }
    int n_cancelled() const { return n_cancelled_; }
    int n_running() const { return n_running_; }

private:
    static constexpr int kPollMs = 1;

    // False if the job was cancelled meanwhile.
    static bool wait(int ms, const engine::JobStream& stream) {
        for (; ms > 0 && !stream.is_cancelled(); ms -= kPollMs) std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
        return !stream.is_cancelled();
    }

    void play(const engine::Job& job, const Script& script, engine::JobStream& stream) {
        engine::JobEvent last;
        last.kind = engine::JobEvent::Kind::finished;
        last.timings.prompt_tokens = static_cast<int32_t>(job.prompt.size());
        last.timings.cached_tokens = script.cached_tokens;
        engine::JobEvent progress;
        progress.kind = engine::JobEvent::Kind::prefill_progress;
        progress.timings = last.timings;
        progress.prompt_done = script.cached_tokens;
        progress.cache_miss = script.cache_miss;
        stream.push(progress);
        last.reason = wait(script.prefill_ms, stream) ? play_tokens(job, script, stream, last) : engine::FinishReason::cancelled;
        if (last.reason == engine::FinishReason::cancelled) ++n_cancelled_;
        if (!script.failure.empty() && last.reason != engine::FinishReason::cancelled) {
            last.kind = engine::JobEvent::Kind::failed;
            last.error = internal_error(script.failure);
        }
        stream.push(std::move(last));
    }

    engine::FinishReason play_tokens(const engine::Job& job, const Script& script, engine::JobStream& stream,
                                     engine::JobEvent& last) {
        text::DecodeStream decode(tokenizer_);
        std::string text;
        engine::JobEvent step;
        const auto flush = [&] {
            if (!step.tokens.empty()) stream.push(step);
            step = {};
        };
        for (const engine::TokenId id : script.ids) {
            if (std::find(job.stop_ids.begin(), job.stop_ids.end(), id) != job.stop_ids.end()) {
                flush();
                return engine::FinishReason::stop_id;
            }
            step.tokens.push_back(id);
            if (job.sampling.n_logprobs >= 0) step.logprobs.push_back({id, -0.5f, {{id, -0.5f}}});
            ++last.timings.output_tokens;
            text += decode.push(id);
            for (const std::string& stop : job.stop_strings) {
                if (const size_t at = text.find(stop); at != std::string::npos) {
                    last.kept_text_bytes = static_cast<int64_t>(at);
                    flush();
                    return engine::FinishReason::stop_string;
                }
            }
            const bool is_full = last.timings.output_tokens >= job.max_tokens;
            if (is_full || static_cast<int>(step.tokens.size()) == script.tokens_per_step) {
                flush();
                if (!is_full && !wait(script.step_ms, stream)) return engine::FinishReason::cancelled;
            }
            if (is_full) return engine::FinishReason::length;
        }
        flush();
        return engine::FinishReason::length;
    }

    const text::Tokenizer& tokenizer_;
    engine::BackendInfo info_;
    mutable std::mutex mutex_;
    Chooser chooser_ = [](const engine::Job&) { return Script(); };
    std::vector<engine::Job> jobs_;
    std::vector<std::thread> threads_;
    std::atomic<bool> is_full_{false};
    std::atomic<int> n_cancelled_{0};
    std::atomic<int> n_running_{0};
};

}  // namespace espalier::server::testing
