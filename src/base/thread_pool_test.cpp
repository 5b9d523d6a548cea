#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace espalier {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
    for (const int n_threads : {1, 2, 3, 8}) {
        ThreadPool pool(n_threads);
        ASSERT_EQ(pool.n_threads(), n_threads);
        for (const int64_t n_tasks : {0, 1, 2, 7, 1000}) {
            std::vector<int> runs(static_cast<size_t>(n_tasks), 0);
            pool.run(n_tasks, [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
            EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(n_tasks), 1)) << n_threads << " threads";
        }
    }
}

TEST(ThreadPool, WorkersAreNumberedAndNeverRunTwoTasksAtOnce) {
    ThreadPool pool(4);
    std::vector<std::atomic<int>> busy(4);
    std::atomic<int> overlaps = 0;
    pool.run(2000, [&](int64_t, int worker) {
        if (busy.at(static_cast<size_t>(worker)).fetch_add(1) != 0) ++overlaps;
        busy.at(static_cast<size_t>(worker)).fetch_sub(1);
    });
    EXPECT_EQ(overlaps, 0);
}

// What one region writes, the caller and the next region's workers see without further synchronisation. Plain memory on purpose:
// under the thread sanitizer a missing edge is reported.
TEST(ThreadPool, ManyShortRegionsSeeEachOthersWrites) {
    ThreadPool pool(4);
    constexpr int64_t kTasks = 16;
    std::vector<int64_t> values(kTasks, 0);
    for (int round = 0; round < 3000; ++round) {
        pool.run(kTasks, [&](int64_t task, int) {
            const int64_t left = values[static_cast<size_t>(task)];
            values[static_cast<size_t>(task)] = left + task;
        });
        ASSERT_EQ(values[kTasks - 1], (round + 1) * (kTasks - 1));
    }
    for (int64_t task = 0; task < kTasks; ++task) EXPECT_EQ(values[static_cast<size_t>(task)], 3000 * task);
}

TEST(ThreadPool, ParkedWorkersWakeUp) {
    ThreadPool pool(3);
    for (int round = 0; round < 5; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the workers spin
        std::atomic<int> done = 0;
        pool.run(100, [&](int64_t, int) { ++done; });
        EXPECT_EQ(done, 100);
    }
}

TEST(ThreadPool, UnevenTasksAreShared) {
    ThreadPool pool(2);
    std::vector<int64_t> tasks_of(2, 0);
    pool.run(64, [&](int64_t task, int worker) {
        if (task == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        ++tasks_of[static_cast<size_t>(worker)];
    });
    // Whoever drew the slow task leaves most of the rest to the other.
    EXPECT_GT(std::max(tasks_of[0], tasks_of[1]), 32);
    EXPECT_EQ(tasks_of[0] + tasks_of[1], 64);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
    for (int round = 0; round < 100; ++round) {
        ThreadPool pool(4, round % 2 == 0 ? ThreadPool::Pin::yes : ThreadPool::Pin::no);
        if (round % 3 == 0) pool.run(5, [](int64_t, int) {});
    }
}

TEST(ThreadPoolDeathTest, NeedsAtLeastTheCaller) {
    EXPECT_DEATH(ThreadPool(0), "a pool has at least the calling thread");
}

}  // namespace
}  // namespace espalier
