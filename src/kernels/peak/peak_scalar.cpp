#include <cstring>

#include "kernels/peak/peak.h"

namespace espalier::kernels::scalar {

uint64_t peak_read(const void* data, size_t bytes) noexcept {
    const char* p = static_cast<const char*>(data);
    uint64_t sums[4] = {};
    for (size_t i = 0; i + 32 <= bytes; i += 32) {
        uint64_t words[4];
        std::memcpy(words, p + i, 32);
        for (int j = 0; j < 4; ++j) sums[j] += words[j];
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

// The scalar tier multiplies and adds apart, which is its peak on a CPU without fused operations.
int64_t peak_fma_f32(int64_t iterations) noexcept {
    constexpr int kChains = 16;
    volatile float seed = 1.0f;
    float sums[kChains];
    const float factor = seed;
    for (int j = 0; j < kChains; ++j) sums[j] = seed;
    for (int64_t i = 0; i < iterations; ++i) {
        for (int j = 0; j < kChains; ++j) sums[j] = sums[j] * factor + factor;
    }
    float total = 0;
    for (const float sum : sums) total += sum;
    seed = total;
    return iterations * kChains;
}

int64_t peak_dot_i8(int64_t iterations) noexcept {
    constexpr int kChains = 16;
    volatile int32_t seed = 3;
    int32_t sums[kChains];
    for (int j = 0; j < kChains; ++j) sums[j] = seed;
    for (int64_t i = 0; i < iterations; ++i) {
        for (int j = 0; j < kChains; ++j) sums[j] = static_cast<int8_t>(sums[j]) * 3 + (sums[j] & 0xff);
    }
    int32_t total = 0;
    for (const int32_t sum : sums) total ^= sum;
    seed = total;
    return iterations * kChains;
}

}  // namespace espalier::kernels::scalar
