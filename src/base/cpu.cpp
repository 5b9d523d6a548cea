#include "base/cpu.h"

#ifdef __x86_64__
#include <cpuid.h>

#include <cstdint>
#endif

namespace espalier {

#ifdef __x86_64__

namespace {

struct CpuId {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros when the CPU does not know the leaf.
CpuId cpuid(uint32_t leaf, uint32_t subleaf) {
    CpuId r;
    if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
    return r;
}

bool has_bit(uint32_t word, int bit) {
    return ((word >> bit) & 1u) != 0;
}

// XCR0: the register sets that the system saves. Only callable when cpuid says OSXSAVE.
uint64_t saved_registers() {
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return static_cast<uint64_t>(high) << 32 | low;
}

}  // namespace

CpuFeatures cpu_features() {
    CpuFeatures f;
    const CpuId leaf1 = cpuid(1, 0);
    constexpr int kOsxsave = 27;
    if (!has_bit(leaf1.ecx, kOsxsave)) return f;
    const uint64_t saved = saved_registers();
    const bool ymm = (saved & 0x6) == 0x6;            // xmm, ymm
    const bool zmm = (saved & 0xe6) == 0xe6;          // and opmask, upper zmm
    const bool tiles = (saved & 0x60000) == 0x60000;  // tile configuration and data
    const CpuId leaf7 = cpuid(7, 0);
    const CpuId leaf7_1 = cpuid(7, 1);
    f.avx2 = ymm && has_bit(leaf7.ebx, 5);
    f.fma = ymm && has_bit(leaf1.ecx, 12);
    f.f16c = ymm && has_bit(leaf1.ecx, 29);
    f.bmi2 = has_bit(leaf7.ebx, 3) && has_bit(leaf7.ebx, 8);
    f.avx_vnni = ymm && has_bit(leaf7_1.eax, 4);
    f.avx512f = zmm && has_bit(leaf7.ebx, 16);
    f.avx512dq = zmm && has_bit(leaf7.ebx, 17);
    f.avx512cd = zmm && has_bit(leaf7.ebx, 28);
    f.avx512bw = zmm && has_bit(leaf7.ebx, 30);
    f.avx512vl = zmm && has_bit(leaf7.ebx, 31);
    f.avx512_vnni = zmm && has_bit(leaf7.ecx, 11);
    f.avx512_bf16 = zmm && has_bit(leaf7_1.eax, 5);
    f.amx_bf16 = tiles && has_bit(leaf7.edx, 22);
    f.amx_tile = tiles && has_bit(leaf7.edx, 24);
    f.amx_int8 = tiles && has_bit(leaf7.edx, 25);
    return f;
}

#else

CpuFeatures cpu_features() {
    return {};
}

#endif

}  // namespace espalier
