#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/peak/peak.h"

namespace espalier::kernels::avx2 {

uint64_t peak_read(const void* data, size_t bytes) noexcept {
    const __m256i* p = static_cast<const __m256i*>(data);
    __m256i sums[8] = {};
    for (size_t i = 0; i + 8 <= bytes / 32; i += 8) {
        _mm_prefetch(reinterpret_cast<const char*>(p + i) + 4096, _MM_HINT_T0);
        for (size_t j = 0; j < 8; ++j) sums[j] = _mm256_add_epi64(sums[j], _mm256_loadu_si256(p + i + j));
    }
    for (int j = 1; j < 8; ++j) sums[0] = _mm256_add_epi64(sums[0], sums[j]);
    return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0) + _mm256_extract_epi64(sums[0], 1) +
                                 _mm256_extract_epi64(sums[0], 2) + _mm256_extract_epi64(sums[0], 3));
}

int64_t peak_fma_f32(int64_t iterations) noexcept {
    constexpr int kChains = 12;
    __m256 sums[kChains];
    __m256 factor = _mm256_set1_ps(0.5f);
    for (int j = 0; j < kChains; ++j) sums[j] = _mm256_set1_ps(static_cast<float>(j));
    for (int64_t i = 0; i < iterations; ++i) {
        __asm__ volatile("" : "+x"(factor));  // the loop may not be folded
        for (int j = 0; j < kChains; ++j) sums[j] = _mm256_fmadd_ps(sums[j], factor, factor);
    }
    for (int j = 1; j < kChains; ++j) sums[0] = _mm256_add_ps(sums[0], sums[j]);
    __asm__ volatile("" : : "x"(sums[0]));
    return iterations * kChains * 8;
}

// vpmaddubsw, vpmaddwd and an add into 32 bits: what exact 8-bit products cost before dot instructions.
int64_t peak_dot_i8(int64_t iterations) noexcept {
    constexpr int kChains = 10;
    __m256i sums[kChains];
    __m256i codes = _mm256_set1_epi8(3);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int j = 0; j < kChains; ++j) sums[j] = _mm256_set1_epi32(j);
    for (int64_t i = 0; i < iterations; ++i) {
        __asm__ volatile("" : "+x"(codes));
        for (int j = 0; j < kChains; ++j) {
            sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(_mm256_maddubs_epi16(codes, sums[j]), ones));
        }
    }
    for (int j = 1; j < kChains; ++j) sums[0] = _mm256_add_epi32(sums[0], sums[j]);
    __asm__ volatile("" : : "x"(sums[0]));
    return iterations * kChains * 32;
}

}  // namespace espalier::kernels::avx2
