#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/peak/peak.h"

namespace espalier::kernels::avx512 {

uint64_t peak_read(const void* data, size_t bytes) noexcept {
    const char* p = static_cast<const char*>(data);
    __m512i sums[8];
    for (int j = 0; j < 8; ++j) sums[j] = _mm512_setzero_si512();
    for (size_t i = 0; i + 512 <= bytes; i += 512) {
        for (size_t j = 0; j < 8; ++j) {
            _mm_prefetch(p + i + j * 64 + 4096, _MM_HINT_T0);
            sums[j] = _mm512_add_epi64(sums[j], _mm512_loadu_si512(p + i + j * 64));
        }
    }
    for (int j = 1; j < 8; ++j) sums[0] = _mm512_add_epi64(sums[0], sums[j]);
    alignas(64) uint64_t words[8];
    _mm512_store_si512(words, sums[0]);
    uint64_t total = 0;
    for (const uint64_t word : words) total += word;
    return total;
}

int64_t peak_fma_f32(int64_t iterations) noexcept {
    constexpr int kChains = 16;
    __m512 sums[kChains];
    __m512 factor = _mm512_set1_ps(0.5f);
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_ps(static_cast<float>(j));
    for (int64_t i = 0; i < iterations; ++i) {
        __asm__ volatile("" : "+v"(factor));  // the loop may not be folded
        for (int j = 0; j < kChains; ++j) sums[j] = _mm512_fmadd_ps(sums[j], factor, factor);
    }
    for (int j = 1; j < kChains; ++j) sums[0] = _mm512_add_ps(sums[0], sums[j]);
    __asm__ volatile("" : : "v"(sums[0]));
    return iterations * kChains * 16;
}

int64_t peak_dot_i8(int64_t iterations) noexcept {
    constexpr int kChains = 16;
    __m512i sums[kChains];
    __m512i codes = _mm512_set1_epi8(3);
    for (int j = 0; j < kChains; ++j) sums[j] = _mm512_set1_epi32(j);
    for (int64_t i = 0; i < iterations; ++i) {
        __asm__ volatile("" : "+v"(codes));
        for (int j = 0; j < kChains; ++j) sums[j] = _mm512_dpbusd_epi32(sums[j], codes, codes);
    }
    for (int j = 1; j < kChains; ++j) sums[0] = _mm512_add_epi32(sums[0], sums[j]);
    __asm__ volatile("" : : "v"(sums[0]));
    return iterations * kChains * 64;
}

}  // namespace espalier::kernels::avx512
