// What the CPU can execute and the operating system saves on a context switch.
#pragma once

namespace espalier {

struct CpuFeatures {
    bool avx2 = false;
    bool fma = false;
    bool f16c = false;
    bool bmi2 = false;
    bool avx_vnni = false;  // the 256-bit VEX form
    bool avx512f = false;
    bool avx512bw = false;
    bool avx512vl = false;
    bool avx512dq = false;
    bool avx512cd = false;
    bool avx512_vnni = false;
    bool avx512_bf16 = false;
    bool amx_tile = false;
    bool amx_int8 = false;
    bool amx_bf16 = false;
};

// Asks cpuid and xgetbv. All false on other architectures. A feature whose registers the system does not save is false.
CpuFeatures cpu_features();

}  // namespace espalier
