// A fixed pool of worker threads for the arithmetic of one engine.
//
// A step is a few hundred short parallel regions, so a region must cost about as much as two cache lines take to cross between
// cores. Each worker has a slot of its own: the caller writes the region and a share of the tasks there, the worker polls it.
// Shares are contiguous, so that a worker streams memory in order; whoever runs out takes tasks from the far end of another's
// share. A region ends when its tasks are done, not when every worker has reported: one that is parked, or whose CPU another
// process has, takes no tasks and nobody waits for it. Idle workers spin for a short while and then park on a futex
// (std::atomic::wait). Results never depend on who ran a task, because every task writes its own outputs.
//
// A claimed task keeps its region alive, so what a slot says may be read after the claim. A claim may come late: if a share
// happens to have the same bits in the next region, the claim is one in that region, and as good.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace espalier {

class ThreadPool {
public:
    // n_threads >= 1 counts the calling thread: ThreadPool(1) starts none. `pin` binds worker i to the i-th allowed CPU.
    enum class Pin { no, yes };
    explicit ThreadPool(int n_threads, Pin pin = Pin::no);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls body(task, worker) for every task in [0, n_tasks), worker in [0, n_threads), and returns when all are done. A worker
    // runs the tasks of its share in ascending order. One caller at a time (the engine thread); body must not call run.
    // n_tasks < 2^32. Allocates nothing.
    template <class Body>
    void run(int64_t n_tasks, const Body& body) {
        if (n_tasks <= 0) return;
        if (workers_.empty() || n_tasks == 1) {
            for (int64_t task = 0; task < n_tasks; ++task) body(task, 0);
            return;
        }
        run_erased(n_tasks, &body,
                   [](const void* context, int64_t task, int worker) { (*static_cast<const Body*>(context))(task, worker); });
    }

    // While timed, the pool adds up how long its threads were not at work: the caller at the end of regions, workers at all
    // times. Off at first: a clock reading costs as much as a small task.
    void set_timed(bool timed);
    struct Times {
        double caller_waits_s = 0;  // for the last tasks of regions
        double workers_busy_s = 0;  // all workers but the caller together
    };
    Times times() const;

private:
    using Erased = void (*)(const void* context, int64_t task, int worker);

    // Written by the caller between regions. Two cache lines: neighbours are fetched in pairs.
    struct alignas(128) Slot {
        std::atomic<uint64_t> share{0};  // tasks [low half, high half) not yet claimed
        std::atomic<uint32_t> generation{0};
        Erased call = nullptr;
        const void* context = nullptr;
    };
    // Written by the worker.
    struct alignas(128) Report {
        std::atomic<int64_t> busy_ns{0};
    };

    void run_erased(int64_t n_tasks, const void* context, Erased call);
    void worker_loop(int worker);
    int64_t drain(int worker);
    int64_t drain_slot(Slot& slot, int worker, bool is_own);

    std::vector<std::thread> workers_;
    std::unique_ptr<Slot[]> slots_;  // one per thread, the caller's first
    std::unique_ptr<Report[]> reports_;
    int64_t caller_waits_ns_ = 0;
    std::atomic<bool> is_timed_{false};
    std::atomic<bool> stopping_{false};
    alignas(128) std::atomic<uint32_t> n_done_{0};  // tasks of this region that workers have finished
};

}  // namespace espalier
