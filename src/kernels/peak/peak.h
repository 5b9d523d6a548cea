// What the machine can do at most, for the share that benchmarks and `doctor` print beside a rate. One thread; callers run one
// per thread and add up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"

namespace espalier::kernels {

// Reads every byte of [data, data + bytes) once; returns a value that depends on all of them. bytes: a multiple of 1024.
using PeakReadFn = uint64_t (*)(const void* data, size_t bytes) noexcept;
// Independent multiply-adds that stay in registers; returns how many multiply-adds were done per iteration times iterations.
using PeakComputeFn = int64_t (*)(int64_t iterations) noexcept;

struct PeakTable {
    PeakReadFn read = nullptr;
    PeakComputeFn fma_f32 = nullptr;  // float fused multiply-adds
    PeakComputeFn dot_i8 = nullptr;   // int8 multiply-adds into int32: dot instructions, or 16-bit pairs where there are none
};

const PeakTable& peak_table(Isa isa);

}  // namespace espalier::kernels
