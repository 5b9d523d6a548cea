// A fixed pool of worker threads for the arithmetic of one engine.
//
// A step is a few hundred short parallel regions. Waking threads through the kernel for each would cost more than the
// work, so idle workers spin for a short while and then park on a futex (std::atomic::wait): spinning alone would waste
// a core beside a busy neighbour. Tasks are handed out by an atomic counter, so a slow core takes fewer of them; results
// never depend on who ran a task, because every task writes its own outputs.
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

    // Calls body(task, worker) for every task in [0, n_tasks), worker in [0, n_threads), and returns when all are done.
    // One caller at a time (the engine thread); body must not call run. Allocates nothing.
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

private:
    using Erased = void (*)(const void* context, int64_t task, int worker);
    void run_erased(int64_t n_tasks, const void* context, Erased call);
    void worker_loop(int worker);
    void drain(int worker);

    std::vector<std::thread> workers_;
    const void* context_ = nullptr;
    Erased call_ = nullptr;
    int64_t n_tasks_ = 0;
    alignas(64) std::atomic<int64_t> next_task_{0};
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<int32_t> n_running_{0};
    std::atomic<bool> stopping_{false};
};

}  // namespace espalier
