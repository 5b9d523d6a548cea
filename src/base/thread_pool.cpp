#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include "base/check.h"

namespace espalier {
namespace {

// ~50 us of polling on a 3 GHz core: longer than the gap between two regions of a step, far shorter than a time slice.
constexpr int kSpins = 4000;

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
}

void pin_to_nth_allowed_cpu(int index) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || index-- != 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

}  // namespace

ThreadPool::ThreadPool(int n_threads, Pin pin) {
    CHECK(n_threads >= 1, "a pool has at least the calling thread");
    for (int worker = 1; worker < n_threads; ++worker) {
        workers_.emplace_back([this, worker, pin] {
            if (pin == Pin::yes) pin_to_nth_allowed_cpu(worker);
            worker_loop(worker);
        });
    }
}

ThreadPool::~ThreadPool() {
    stopping_.store(true, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void ThreadPool::drain(int worker) {
    for (;;) {
        const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
        if (task >= n_tasks_) return;
        call_(context_, task, worker);
    }
}

void ThreadPool::run_erased(int64_t n_tasks, const void* context, Erased call) {
    context_ = context;
    call_ = call;
    n_tasks_ = n_tasks;
    next_task_.store(0, std::memory_order_relaxed);
    n_running_.store(static_cast<int32_t>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    drain(0);
    // The others may still be inside their last task: spin, then sleep until the last one is out.
    for (int spins = 0;; ++spins) {
        const int32_t running = n_running_.load(std::memory_order_acquire);
        if (running == 0) return;
        if (spins < kSpins) pause_cpu();
        else n_running_.wait(running, std::memory_order_acquire);
    }
}

void ThreadPool::worker_loop(int worker) {
    uint32_t seen = 0;
    for (;;) {
        for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
            if (spins < kSpins) pause_cpu();
            else generation_.wait(seen, std::memory_order_acquire);
        }
        ++seen;
        if (stopping_.load(std::memory_order_acquire)) return;
        drain(worker);
        if (n_running_.fetch_sub(1, std::memory_order_acq_rel) == 1) n_running_.notify_one();
    }
}

}  // namespace espalier
