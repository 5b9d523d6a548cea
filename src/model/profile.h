// Where the time of passes goes, by kind of work, for `bench model --profile`. Off unless a caller attaches one.
//
// A pass is straight-line code on the engine thread, so time is taken by marks: what passed since the last mark belongs to the
// work that the mark names. The pool says how long its threads were idle meanwhile.
//
// Thread: the engine thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "base/thread_pool.h"

namespace espalier::model {

enum class Work : uint8_t {
    setup,       // plan, pages, rotation angles, embedding
    norm,        // norms of the residual stream, conversion of the rows that matrices read
    mixer_in,    // matrix: q, k, v and gates; or what a recurrent layer projects
    attention,   // head norms, rotation, keys and values, softmax
    recurrence,  // convolution, gates, delta rule, gated norm
    mixer_out,   // matrix
    mlp_in,      // matrix: gate and up
    mlp_gate,    // SwiGLU
    mlp_out,     // matrix
    head,        // matrix
    commit,      // keys, values and states become permanent
    other,       // outside passes
};
inline constexpr size_t kWorks = static_cast<size_t>(Work::other) + 1;
inline constexpr std::array<std::string_view, kWorks> kWorkNames = {"setup",      "norm",      "mixer_in", "attention",
                                                                    "recurrence", "mixer_out", "mlp_in",   "mlp_gate",
                                                                    "mlp_out",    "head",      "commit",   "other"};

class StepProfile {
public:
    // The pool must outlive the profile and is timed while it lives.
    explicit StepProfile(ThreadPool& pool) : pool_(pool) { pool.set_timed(true), mark(Work::other), reset(); }
    ~StepProfile() { pool_.set_timed(false); }
    StepProfile(const StepProfile&) = delete;
    StepProfile& operator=(const StepProfile&) = delete;

    struct Entry {
        double wall_s = 0;
        double idle_s = 0;  // of all threads together
    };

    void mark(Work work) {
        const Clock::time_point now = Clock::now();
        const ThreadPool::Times times = pool_.times();
        const double wall = std::chrono::duration<double>(now - last_).count();
        const double n_workers = pool_.n_threads() - 1;
        Entry& entry = entries_[static_cast<size_t>(work)];
        entry.wall_s += wall;
        entry.idle_s += times.caller_waits_s - last_times_.caller_waits_s + n_workers * wall -
                        (times.workers_busy_s - last_times_.workers_busy_s);
        last_ = now;
        last_times_ = times;
    }

    void reset() { entries_ = {}; }
    const std::array<Entry, kWorks>& entries() const { return entries_; }

private:
    using Clock = std::chrono::steady_clock;

    ThreadPool& pool_;
    Clock::time_point last_ = Clock::now();
    ThreadPool::Times last_times_;
    std::array<Entry, kWorks> entries_{};
};

}  // namespace espalier::model
