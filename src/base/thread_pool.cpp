#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>

#include "base/check.h"

namespace espalier {
namespace {

// About 50 us of polling on a 3 GHz core: longer than the gap between two regions of a step, far shorter than a time slice.
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

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr uint64_t make_share(uint64_t begin, uint64_t end) {
    return begin | end << 32;
}

}  // namespace

ThreadPool::ThreadPool(int n_threads, Pin pin) {
    CHECK(n_threads >= 1, "a pool has at least the calling thread");
    slots_ = std::make_unique<Slot[]>(static_cast<size_t>(n_threads));
    reports_ = std::make_unique<Report[]>(static_cast<size_t>(n_threads));
    for (int worker = 1; worker < n_threads; ++worker) {
        workers_.emplace_back([this, worker, pin] {
            if (pin == Pin::yes) pin_to_nth_allowed_cpu(worker);
            worker_loop(worker);
        });
    }
}

ThreadPool::~ThreadPool() {
    stopping_.store(true, std::memory_order_release);
    for (int worker = 1; worker < n_threads(); ++worker) {
        slots_[static_cast<size_t>(worker)].generation.fetch_add(1, std::memory_order_release);
        slots_[static_cast<size_t>(worker)].generation.notify_one();
    }
    for (auto& worker : workers_) worker.join();
}

void ThreadPool::set_timed(bool timed) {
    is_timed_.store(timed, std::memory_order_relaxed);
}

ThreadPool::Times ThreadPool::times() const {
    Times times;
    times.caller_waits_s = static_cast<double>(caller_waits_ns_) * 1e-9;
    for (int worker = 1; worker < n_threads(); ++worker) {
        times.workers_busy_s += static_cast<double>(reports_[static_cast<size_t>(worker)].busy_ns.load()) * 1e-9;
    }
    return times;
}

// Runs tasks of one share until none is left: the owner from its near end, others from the far one.
int64_t ThreadPool::drain_slot(Slot& slot, int worker, bool is_own) {
    int64_t n_done = 0;
    uint64_t share = slot.share.load(std::memory_order_relaxed);
    for (;;) {
        const uint64_t begin = share & 0xffffffffu;
        const uint64_t end = share >> 32;
        if (begin >= end) return n_done;
        const uint64_t rest = is_own ? make_share(begin + 1, end) : make_share(begin, end - 1);
        if (!slot.share.compare_exchange_weak(share, rest, std::memory_order_acquire, std::memory_order_relaxed)) continue;
        slot.call(slot.context, static_cast<int64_t>(is_own ? begin : end - 1), worker);
        ++n_done;
        share = slot.share.load(std::memory_order_relaxed);
    }
}

int64_t ThreadPool::drain(int worker) {
    const int n = n_threads();
    int64_t n_done = 0;
    for (int i = 0; i < n; ++i) {
        const int victim = worker + i < n ? worker + i : worker + i - n;
        n_done += drain_slot(slots_[static_cast<size_t>(victim)], worker, i == 0);
    }
    return n_done;
}

void ThreadPool::run_erased(int64_t n_tasks, const void* context, Erased call) {
    CHECK(n_tasks < int64_t{1} << 32, "task numbers have 32 bits");
    const int64_t n = n_threads();
    n_done_.store(0, std::memory_order_relaxed);
    for (int64_t i = n - 1; i >= 0; --i) {
        Slot& slot = slots_[static_cast<size_t>(i)];
        slot.call = call;
        slot.context = context;
        const auto begin = static_cast<uint64_t>(i * n_tasks / n);
        const auto end = static_cast<uint64_t>((i + 1) * n_tasks / n);
        slot.share.store(make_share(begin, end), std::memory_order_release);
        if (i == 0) break;
        slot.generation.fetch_add(1, std::memory_order_release);
        slot.generation.notify_one();
    }
    const auto n_others = static_cast<uint32_t>(n_tasks - drain(0));
    if (n_done_.load(std::memory_order_acquire) == n_others) return;
    const bool is_timed = is_timed_.load(std::memory_order_relaxed);
    const int64_t begin_ns = is_timed ? now_ns() : 0;
    // The others are inside their last task: spin, then sleep until the last one is out.
    for (int spins = 0;; ++spins) {
        const uint32_t n_done = n_done_.load(std::memory_order_acquire);
        if (n_done == n_others) break;
        if (spins < kSpins) pause_cpu();
        else n_done_.wait(n_done, std::memory_order_acquire);
    }
    if (is_timed) caller_waits_ns_ += now_ns() - begin_ns;
}

void ThreadPool::worker_loop(int worker) {
    Slot& slot = slots_[static_cast<size_t>(worker)];
    std::atomic<int64_t>& busy_ns = reports_[static_cast<size_t>(worker)].busy_ns;
    uint32_t seen = 0;
    for (;;) {
        uint32_t generation = slot.generation.load(std::memory_order_acquire);
        for (int spins = 0; generation == seen; ++spins) {
            if (spins < kSpins) pause_cpu();
            else slot.generation.wait(seen, std::memory_order_acquire);
            generation = slot.generation.load(std::memory_order_acquire);
        }
        seen = generation;
        if (stopping_.load(std::memory_order_acquire)) return;
        const bool is_timed = is_timed_.load(std::memory_order_relaxed);
        const int64_t begin_ns = is_timed ? now_ns() : 0;
        const int64_t n_done = drain(worker);
        if (is_timed) busy_ns.fetch_add(now_ns() - begin_ns, std::memory_order_relaxed);
        // One report for all tasks of the region: it cannot end before, so they are all of the same one.
        if (n_done == 0) continue;
        n_done_.fetch_add(static_cast<uint32_t>(n_done), std::memory_order_acq_rel);
        n_done_.notify_one();
    }
}

}  // namespace espalier
