// The machine's own limits, measured: what benchmarks and `doctor` print shares of.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/peak/peak.h"
#include "tensor/buffer.h"

namespace espalier::probe {

// 0 of nothing.
double median_of(std::vector<double> values);

// What /proc/cpuinfo below `root` calls the processor; "unknown" if it does not say.
std::string cpu_name(const std::string& root = "");

// Samples of each limit, all threads of a pool together; what is reported is the median.
class Peaks {
public:
    // The pool must outlive this.
    Peaks(kernels::Isa isa, ThreadPool& pool) : table_(kernels::peak_table(isa)), pool_(pool) {}

    // Memory to read from: larger than caches. Errors: exhausted.
    Status reserve();
    // One sample of each, about 0.1 s.
    void sample();

    double read_gb_s() const { return median_of(read_); }
    double float_gmac_s() const { return median_of(float_); }
    double int8_gmac_s() const { return median_of(int8_); }
    // Of the reading rate: the best sample over the worst.
    double read_spread() const;

private:
    double compute(kernels::PeakComputeFn function);

    const kernels::PeakTable& table_;
    ThreadPool& pool_;
    Buffer memory_;
    std::atomic<uint64_t> sink_ = 0;
    std::vector<double> read_;
    std::vector<double> float_;
    std::vector<double> int8_;
};

}  // namespace espalier::probe
