#include "base/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace espalier {
namespace {

// Flags as the Linux kernel spells them; empty where there is no such file.
std::string cpuinfo_flags() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("flags", 0) == 0) return line + " ";
    }
    return "";
}

TEST(Cpu, AgreesWithTheSystem) {
    const std::string flags = cpuinfo_flags();
    if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags here";
    const auto listed = [&](const char* name) { return flags.find(" " + std::string(name) + " ") != std::string::npos; };
    const CpuFeatures cpu = cpu_features();
    EXPECT_EQ(cpu.avx2, listed("avx2"));
    EXPECT_EQ(cpu.fma, listed("fma"));
    EXPECT_EQ(cpu.f16c, listed("f16c"));
    EXPECT_EQ(cpu.bmi2, listed("bmi2"));
    EXPECT_EQ(cpu.avx512f, listed("avx512f"));
    EXPECT_EQ(cpu.avx512bw, listed("avx512bw"));
    EXPECT_EQ(cpu.avx512_vnni, listed("avx512_vnni"));
    EXPECT_EQ(cpu.avx512_bf16, listed("avx512_bf16"));
    EXPECT_EQ(cpu.amx_tile, listed("amx_tile"));
}

}  // namespace
}  // namespace espalier
