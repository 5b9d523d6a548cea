#include <algorithm>
#include <ctime>
#include <map>

#include "base/thread_pool.h"
#include "kernels/benching.h"
#include "kernels/peak/peak.h"
#include "kernels/testing.h"
#include "tensor/buffer.h"

namespace espalier::kernels {
namespace {

// One thread is timed by its processor time, which a busy neighbour does not change; several by the clock on the wall.
double now_seconds(int n_threads) {
    timespec t;
    clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <class Body>
double seconds_of(int n_threads, const Body& body) {
    const double begin = now_seconds(n_threads);
    body();
    return now_seconds(n_threads) - begin;
}

Peaks measure(Isa isa, int n_threads) {
    constexpr size_t kBytes = size_t{128} << 20;
    constexpr int64_t kIterations = 1'000'000;
    constexpr int kRepeats = 4;
    const PeakTable& table = peak_table(isa);
    ThreadPool pool(n_threads);
    Buffer buffer = *Buffer::allocate(kBytes * static_cast<size_t>(n_threads));
    std::fill_n(buffer.data(), buffer.bytes(), std::byte{1});
    Peaks peaks;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
        uint64_t sum = 0;
        const double read = seconds_of(n_threads, [&] {
            pool.run(n_threads, [&](int64_t task, int) {
                const uint64_t part = table.read(buffer.data() + static_cast<size_t>(task) * kBytes, kBytes);
                if (task == 0) sum = part;
            });
        });
        benchmark::DoNotOptimize(sum);
        const double n = n_threads;
        const double fma = seconds_of(n_threads, [&] { pool.run(n_threads, [&](int64_t, int) { table.fma_f32(kIterations); }); });
        const double dot = seconds_of(n_threads, [&] { pool.run(n_threads, [&](int64_t, int) { table.dot_i8(kIterations); }); });
        peaks.read_gb_s = std::max(peaks.read_gb_s, n * static_cast<double>(kBytes) / read * 1e-9);
        peaks.fma_gmac_s = std::max(peaks.fma_gmac_s, n * static_cast<double>(table.fma_f32(1)) * kIterations / fma * 1e-9);
        peaks.dot_i8_gmac_s = std::max(peaks.dot_i8_gmac_s, n * static_cast<double>(table.dot_i8(1)) * kIterations / dot * 1e-9);
    }
    return peaks;
}

}  // namespace

const Peaks& measured_peaks(Isa isa, int n_threads) {
    static std::map<std::pair<Isa, int>, Peaks> measured;
    const auto [entry, is_new] = measured.try_emplace({isa, n_threads});
    if (is_new) entry->second = measure(isa, n_threads);
    return entry->second;
}

void report(benchmark::State& state, Isa isa, int n_threads, Bound bound, double work) {
    const Peaks& peaks = measured_peaks(isa, n_threads);
    const double peak = bound == Bound::read ? peaks.read_gb_s : bound == Bound::fma ? peaks.fma_gmac_s : peaks.dot_i8_gmac_s;
    using benchmark::Counter;
    const double giga = work * 1e-9;
    state.counters[bound == Bound::read ? "GB/s" : "GMAC/s"] = Counter(giga, Counter::kIsIterationInvariantRate);
    state.counters["share"] = Counter(giga / peak, Counter::kIsIterationInvariantRate);
    state.counters["peak"] = peak;
}

bool skip_unless_available(benchmark::State& state, Isa isa) {
    if (is_available(isa)) return false;
    state.SkipWithError("this CPU cannot run this tier");
    return true;
}

}  // namespace espalier::kernels
