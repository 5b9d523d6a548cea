// doctor on made-up /proc and /sys trees: each trouble is found, named, and comes with what to do.
#include "probe/doctor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace espalier::probe {
namespace {

namespace fs = std::filesystem;

class Doctor : public testing::Test {
protected:
    void SetUp() override {
        root_ = fs::temp_directory_path() / ("espalier-doctor-" + std::to_string(getpid()));
        fs::remove_all(root_);
        write("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n");
        write("proc/loadavg", "0.01 0.05 0.10 1/100 1\n");
        write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "balance_performance\n");
        write("sys/class/power_supply/AC/type", "Mains\n");
        write("sys/class/power_supply/AC/online", "1\n");
        write("sys/class/power_supply/BAT0/type", "Battery\n");
        write("sys/class/powercap/intel-rapl:0/energy_uj", "123\n");
        write("sys/class/powercap/intel-rapl:0:0/energy_uj", "123\n");
        write("sys/devices/system/node/node0/meminfo", "");
    }
    void TearDown() override { fs::remove_all(root_); }

    void write(const std::string& path, const std::string& text) {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    Finding find(const std::string& name) {
        const auto findings = examine_system(root_.string());
        const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.name == name; });
        EXPECT_NE(found, findings.end()) << name;
        return found == findings.end() ? Finding{} : *found;
    }
    void expect_improvable(const std::string& name, const std::string& value, const std::string& advice) {
        const Finding finding = find(name);
        EXPECT_EQ(finding.state, Finding::State::improvable) << name;
        EXPECT_NE(finding.value.find(value), std::string::npos) << finding.value;
        EXPECT_NE(finding.advice.find(advice), std::string::npos) << finding.advice;
    }
    fs::path root_;
};

TEST_F(Doctor, AGoodMachineHasNothingToChange) {
    for (const Finding& finding : examine_system(root_.string())) {
        EXPECT_EQ(finding.state, Finding::State::good) << finding.name << ": " << finding.value;
        EXPECT_EQ(finding.advice, "");
    }
    EXPECT_EQ(find("memory").value, "16.0 GiB of 32.0 GiB available");
    EXPECT_EQ(find("energy counters").value, "1 packages, readable");
}

TEST_F(Doctor, WhatCannotBeSeenIsUnknown) {
    fs::remove_all(root_);
    for (const Finding& finding : examine_system(root_.string())) {
        const bool is_from_the_process = finding.name == "CPUs";
        EXPECT_EQ(finding.state, is_from_the_process ? Finding::State::good : Finding::State::unknown) << finding.name;
    }
}

TEST_F(Doctor, HugePagesAreOff) {
    write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    expect_improvable("huge pages", "never", "echo madvise");
}

TEST_F(Doctor, LittleMemory) {
    write("proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\nSwapTotal: 4194304 kB\nSwapFree: 1048576 kB\n");
    expect_improvable("memory", "1.0 GiB of 4.0 GiB", "small model");
    expect_improvable("swap", "3.0 GiB in use", "free memory");
}

TEST_F(Doctor, LimitsOfAContainer) {
    write("sys/fs/cgroup/memory.max", "2147483648\n");
    write("sys/fs/cgroup/cpu.max", "50000 100000\n");
    expect_improvable("memory", "limited to 2.0 GiB", "small model");
    expect_improvable("CPUs", "0.5 of them", "--threads 1");
    write("sys/fs/cgroup/memory.max", "max\n");
    write("sys/fs/cgroup/cpu.max", "max 100000\n");
    EXPECT_EQ(find("memory").state, Finding::State::good);
    EXPECT_EQ(find("CPUs").state, Finding::State::good);
}

TEST_F(Doctor, PowerModes) {
    write("sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "power\n");
    expect_improvable("power mode", "preference power", "performance");
    fs::remove(root_ / "sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference");
    expect_improvable("power mode", "governor powersave", "cpupower");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n");
    EXPECT_EQ(find("power mode").state, Finding::State::good);
    write("sys/firmware/acpi/platform_profile", "low-power\n");
    expect_improvable("power mode", "low-power", "powerprofilesctl");
    write("sys/class/power_supply/AC/online", "0\n");
    expect_improvable("power supply", "battery", "plug in");
}

TEST_F(Doctor, OtherWorkAndNodes) {
    write("proc/loadavg", "999.5 1 1 1/1 1\n");
    expect_improvable("other work", "999.50", "too low");
    write("sys/devices/system/node/node1/meminfo", "");
    write("sys/devices/system/node/possible", "0-1");
    expect_improvable("memory nodes", "2", "numactl");
}

TEST_F(Doctor, OddFilesAreUnknownNotWrong) {
    write("proc/meminfo", "MemTotal\nMemAvailable: many kB\n");
    write("proc/loadavg", "\n");
    write("sys/kernel/mm/transparent_hugepage/enabled", "]odd[\n");
    EXPECT_EQ(find("memory").state, Finding::State::unknown);
    EXPECT_EQ(find("other work").state, Finding::State::unknown);
    EXPECT_EQ(find("huge pages").value, "]odd[");
}

TEST(DoctorRun, MeasuresAndReports) {
    DoctorOptions options;
    options.n_threads = 1;
    options.samples = 1;
    const auto report = run_doctor(options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_GT(report->read_gb_s, 0);
    EXPECT_GT(report->int8_gmac_s, 0);
    const Json json = report->to_json();
    EXPECT_EQ(json["findings"].size(), report->findings.size());
    EXPECT_NE(report->to_text().find("GB/s read"), std::string::npos);
    options.isa = "no-such-tier";
    EXPECT_FALSE(run_doctor(options));
}

}  // namespace
}  // namespace espalier::probe
