// Sources: Documentation/admin-guide/mm/transhuge.rst, .../cpufreq and power/powercap of the Linux kernel; cgroup-v2.rst for
// limits.
#include "probe/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/cpu.h"
#include "engine/load.h"
#include "kernels/dispatch.h"
#include "probe/peaks.h"

namespace espalier::probe {
namespace {

namespace fs = std::filesystem;
using State = Finding::State;

constexpr int64_t kGiB = int64_t{1} << 30;
// A third of a small model's weights and a context of 32 K fit; less is for the demo model only.
constexpr int64_t kMemoryLeast = 4 * kGiB;
constexpr double kSpreadMost = 1.5;
constexpr double kBusyShare = 0.3;

std::optional<std::string> first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    if (!file || !std::getline(file, line)) return std::nullopt;
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
    return line;
}

std::optional<int64_t> number_in(const fs::path& path) {
    const auto line = first_line(path);
    if (!line) return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
    if (error != std::errc() || end == line->data()) return std::nullopt;
    return value;
}

// The word in brackets: "always [madvise] never".
std::string chosen_word(const std::string& line) {
    const size_t begin = line.find('[');
    const size_t end = line.find(']');
    return begin == std::string::npos || end == std::string::npos || end < begin ? line : line.substr(begin + 1, end - begin - 1);
}

std::string gib(int64_t bytes) {
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

// Bytes of a line of /proc/meminfo.
std::optional<int64_t> memory_line(const std::string& root, std::string_view key) {
    std::ifstream file(root + "/proc/meminfo");
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
        std::istringstream fields(line.substr(key.size() + 1));
        int64_t kib = 0;
        if (fields >> kib) return kib * 1024;
    }
    return std::nullopt;
}

Finding memory(const std::string& root) {
    const auto total = memory_line(root, "MemTotal");
    const auto available = memory_line(root, "MemAvailable");
    if (!total || !available) return {"memory", State::unknown, "not visible", "/proc/meminfo cannot be read"};
    std::string value = fmt::format("{} of {} available", gib(*available), gib(*total));
    int64_t usable = *available;
    const auto limit = number_in(root + "/sys/fs/cgroup/memory.max");
    if (limit && *limit < *total) {
        value += fmt::format(", limited to {} by the container", gib(*limit));
        usable = std::min(usable, *limit);
    }
    if (usable >= kMemoryLeast) return {"memory", State::good, value, ""};
    return {"memory", State::improvable, value,
            fmt::format("less than {}: close programs, or take a small model and a short --ctx", gib(kMemoryLeast))};
}

Finding swap(const std::string& root) {
    const auto total = memory_line(root, "SwapTotal");
    const auto free_bytes = memory_line(root, "SwapFree");
    if (!total || !free_bytes) return {"swap", State::unknown, "not visible", ""};
    const int64_t used = *total - *free_bytes;
    if (used < kGiB) return {"swap", State::good, *total == 0 ? "none" : gib(used) + " in use", ""};
    return {"swap", State::improvable, gib(used) + " in use",
            "weights that are swapped out are read from disk for every token: free memory"};
}

Finding huge_pages(const std::string& root) {
    const std::string name = "huge pages";
    const auto line = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
    if (!line) return {name, State::unknown, "not visible", "the kernel has no transparent huge pages, or hides them"};
    const std::string mode = chosen_word(*line);
    if (mode == "always" || mode == "madvise") return {name, State::good, mode, ""};
    return {name, State::improvable, mode,
            "weights are read 20 to 30 % slower: echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding load(const std::string& root, int32_t n_cpus) {
    const auto line = first_line(root + "/proc/loadavg");
    double average = 0;
    if (!line || !(std::istringstream(*line) >> average)) return {"other work", State::unknown, "not visible", ""};
    const std::string value = fmt::format("load {:.2f} on {} CPUs", average, n_cpus);
    if (average <= kBusyShare * n_cpus) return {"other work", State::good, value, ""};
    return {"other work", State::improvable, value,
            "other programs use the CPUs and the memory bus: what is measured here is too low"};
}

Finding cpus(const std::string& root, int32_t n_allowed) {
    const auto online = number_in(root + "/sys/devices/system/cpu/online");
    std::string value = fmt::format("{} CPUs for this process", n_allowed);
    const auto quota = first_line(root + "/sys/fs/cgroup/cpu.max");
    double microseconds = 0;
    double period = 0;
    const bool has_quota = quota && (std::istringstream(*quota) >> microseconds >> period) && period > 0;
    if (has_quota && microseconds / period < n_allowed) {
        value += fmt::format(", {:.1f} of them by the container's quota", microseconds / period);
        return {"CPUs", State::improvable, value,
                fmt::format("threads beyond the quota are stopped in the middle of a step: --threads {}",
                            std::max(1, static_cast<int>(microseconds / period)))};
    }
    const auto smt = number_in(root + "/sys/devices/system/cpu/smt/active");
    if (online && smt && *smt == 1) value += ", two to a core";
    return {"CPUs", State::good, value, ""};
}

Finding power_mode(const std::string& root) {
    const std::string name = "power mode";
    const fs::path folder = root + "/sys/devices/system/cpu/cpu0/cpufreq";
    const auto governor = first_line(folder / "scaling_governor");
    const auto profile = first_line(root + "/sys/firmware/acpi/platform_profile");
    std::string value = governor ? "governor " + *governor : "";
    const auto preference = first_line(folder / "energy_performance_preference");
    if (preference) value += ", preference " + *preference;
    if (profile) value += (value.empty() ? "profile " : ", profile ") + *profile;
    if (value.empty()) return {name, State::unknown, "not visible (a virtual machine?)", ""};
    // With a driver that has preferences, the governor "powersave" is the ordinary one and the preference decides.
    const bool is_slow = preference ? *preference == "power" || *preference == "balance_power"
                                    : governor && (*governor == "powersave" || *governor == "conservative");
    if (profile && (*profile == "low-power" || *profile == "quiet"))
        return {name, State::improvable, value, "powerprofilesctl set performance"};
    if (!is_slow) return {name, State::good, value, ""};
    return {name, State::improvable, value,
            preference ? "powerprofilesctl set performance, or write performance to every energy_performance_preference"
                       : "sudo cpupower frequency-set -g performance"};
}

Finding mains(const std::string& root) {
    std::error_code error;
    bool has_mains = false;
    for (fs::directory_iterator it(root + "/sys/class/power_supply", error), end; !error && it != end; it.increment(error)) {
        if (first_line(it->path() / "type").value_or("") != "Mains") continue;
        has_mains = true;
        if (number_in(it->path() / "online").value_or(0) == 1) return {"power supply", State::good, "mains", ""};
    }
    if (!has_mains) return {"power supply", State::unknown, "not visible", ""};
    return {"power supply", State::improvable, "battery", "most laptops run slower on battery: plug in"};
}

Finding energy(const std::string& root) {
    const std::string name = "energy counters";
    std::error_code error;
    std::vector<fs::path> zones;
    for (fs::directory_iterator it(root + "/sys/class/powercap", error), end; !error && it != end; it.increment(error)) {
        const std::string zone = it->path().filename().string();
        const bool is_package = zone.starts_with("intel-rapl:") && std::count(zone.begin(), zone.end(), ':') == 1;
        if (is_package) zones.push_back(it->path());
    }
    if (zones.empty()) return {name, State::unknown, "none (a virtual machine, or no RAPL)", ""};
    for (const fs::path& zone : zones) {
        if (::access((zone / "energy_uj").c_str(), R_OK) == 0) continue;
        return {
            name, State::improvable, fmt::format("{} packages, not readable", zones.size()),
            "energy per token is not measured: sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj (until the next boot)"};
    }
    return {name, State::good, fmt::format("{} packages, readable", zones.size()), ""};
}

Finding numa(const std::string& root) {
    std::error_code error;
    int n_nodes = 0;
    for (fs::directory_iterator it(root + "/sys/devices/system/node", error), end; !error && it != end; it.increment(error)) {
        const std::string name = it->path().filename().string();
        if (name.starts_with("node") && name.size() > 4 && name[4] >= '0' && name[4] <= '9') ++n_nodes;
    }
    if (n_nodes == 0) return {"memory nodes", State::unknown, "not visible", ""};
    if (n_nodes == 1) return {"memory nodes", State::good, "1", ""};
    return {"memory nodes", State::improvable, fmt::format("{}", n_nodes),
            "reading from another node is slower: numactl --cpunodebind=0 --membind=0 espalier serve ... if the model fits one"};
}

Finding tiers(kernels::Isa chosen, const std::string& forced) {
    std::string value;
    for (const kernels::Isa isa : kernels::available_isas())
        value += (value.empty() ? "" : ", ") + std::string(kernels::to_string(isa));
    value += fmt::format("; in use: {}", kernels::to_string(chosen));
    if (!forced.empty() && chosen != kernels::available_isas().back())
        return {"kernels", State::improvable, value, "ESPALIER_ISA forces a lower tier: unset it"};
    if (chosen == kernels::Isa::scalar)
        return {"kernels", State::bad, value, "this CPU has no AVX2 (or a virtual machine hides it): replies will be very slow"};
    return {"kernels", State::good, value, ""};
}

}  // namespace

std::string_view to_string(Finding::State state) {
    switch (state) {
        case State::good: return "ok";
        case State::unknown: return "unknown";
        case State::improvable: return "improve";
        case State::bad: return "bad";
    }
    return "unknown";
}

std::vector<Finding> examine_system(const std::string& root) {
    const int32_t n_cpus = engine::allowed_cpus();
    return {cpus(root, n_cpus), memory(root),     swap(root),  huge_pages(root), numa(root),
            load(root, n_cpus), power_mode(root), mains(root), energy(root)};
}

Result<DoctorReport> run_doctor(const DoctorOptions& options) {
    DoctorReport report;
    TRY_ASSIGN(const kernels::Isa isa, kernels::choose_isa(options.isa));
    TRY_ASSIGN(const auto pool, engine::make_pool(options.n_threads));
    report.cpu = cpu_name(options.root);
    report.tier = kernels::to_string(isa);
    report.n_threads = pool->n_threads();
    report.findings.push_back(tiers(isa, options.isa));
    // Before measuring: that is load, too.
    for (Finding& finding : examine_system(options.root)) report.findings.push_back(std::move(finding));
    Peaks peaks(isa, *pool);
    TRY(peaks.reserve());
    for (int32_t i = 0; i < options.samples; ++i) peaks.sample();
    report.read_gb_s = peaks.read_gb_s();
    report.float_gmac_s = peaks.float_gmac_s();
    report.int8_gmac_s = peaks.int8_gmac_s();
    Finding bandwidth{
        "memory bandwidth", State::good,
        fmt::format("{:.1f} GB/s read: at most {:.0f} steps a second per GB of weights", report.read_gb_s, report.read_gb_s), ""};
    if (peaks.read_spread() > kSpreadMost) {
        bandwidth.state = State::improvable;
        bandwidth.value += fmt::format(", samples differ by {:.1f}x", peaks.read_spread());
        bandwidth.advice = "something else uses the memory bus, or the clock changes: run again when it is quiet";
    }
    report.findings.push_back(bandwidth);
    report.findings.push_back({"arithmetic", State::good,
                               fmt::format("int8 {:.0f} GMAC/s, float {:.0f} GMAC/s", report.int8_gmac_s, report.float_gmac_s),
                               ""});
#ifndef NDEBUG
    report.findings.push_back({"build", State::bad, "checks for developers are on", "use a release build: ./dev build"});
#endif
    return report;
}

bool DoctorReport::is_well() const {
    return std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.state == State::bad; });
}

Json DoctorReport::to_json() const {
    Json list = Json::array();
    for (const Finding& finding : findings) {
        list.push_back(
            {{"name", finding.name}, {"state", to_string(finding.state)}, {"value", finding.value}, {"advice", finding.advice}});
    }
    return {{"machine",
             {{"cpu", cpu},
              {"tier", tier},
              {"threads", n_threads},
              {"read_gb_s", read_gb_s},
              {"float_gmac_s", float_gmac_s},
              {"int8_gmac_s", int8_gmac_s}}},
            {"is_well", is_well()},
            {"findings", std::move(list)}};
}

std::string DoctorReport::to_text() const {
    std::string text = cpu + "\n";
    for (const Finding& finding : findings) {
        text += fmt::format("{:<8} {:<17} {}\n", to_string(finding.state), finding.name, finding.value);
        if (!finding.advice.empty()) text += fmt::format("{:<8} {:<17} {}\n", "", "", "-> " + finding.advice);
    }
    const auto n = std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return f.state > State::unknown; });
    text += n == 0 ? "nothing to change\n" : fmt::format("{} to change\n", n);
    return text;
}

}  // namespace espalier::probe
