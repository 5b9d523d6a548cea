// What the micro-benchmarks share: the peaks of this machine in this run, and counters with their share.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>

#include "kernels/variants.h"

namespace espalier::kernels {

struct Peaks {
    double read_gb_s = 0;
    double fma_gmac_s = 0;
    double dot_i8_gmac_s = 0;
};

// The best of a few short runs on n_threads threads; measured once per (isa, n_threads) and process.
const Peaks& measured_peaks(Isa isa, int n_threads);

enum class Bound { read, fma, dot_i8 };

// Adds "GB/s" or "GMAC/s" for `work` bytes or multiply-adds per iteration, and "share" of the peak.
void report(benchmark::State& state, Isa isa, int n_threads, Bound bound, double work);

bool skip_unless_available(benchmark::State& state, Isa isa);

}  // namespace espalier::kernels
