#include "probe/peaks.h"

#include <algorithm>
#include <chrono>
#include <fstream>

namespace espalier::probe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = size_t{512} << 20;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

double median_of(std::vector<double> values) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

std::string cpu_name(const std::string& root) {
    std::ifstream file(root + "/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

Status Peaks::reserve() {
    TRY_ASSIGN(memory_, Buffer::allocate(kReadBytes));
    std::fill_n(memory_.as<uint8_t>(), kReadBytes, uint8_t{1});
    return {};
}

void Peaks::sample() {
    const auto n = static_cast<int64_t>(pool_.n_threads());
    const size_t slice = kReadBytes / static_cast<size_t>(n) / 1024 * 1024;
    const auto begin = Clock::now();
    pool_.run(n,
              [&](int64_t task, int) { sink_ = sink_ + table_.read(memory_.data() + static_cast<size_t>(task) * slice, slice); });
    read_.push_back(static_cast<double>(slice) * static_cast<double>(n) / seconds_since(begin) / 1e9);
    float_.push_back(compute(table_.fma_f32));
    int8_.push_back(compute(table_.dot_i8));
}

double Peaks::read_spread() const {
    if (read_.empty()) return 1;
    const auto [least, most] = std::minmax_element(read_.begin(), read_.end());
    return *most / *least;
}

double Peaks::compute(kernels::PeakComputeFn function) {
    const auto n = static_cast<int64_t>(pool_.n_threads());
    std::atomic<int64_t> macs = 0;
    const auto begin = Clock::now();
    pool_.run(n, [&](int64_t, int) { macs += function(1 << 20); });
    return static_cast<double>(macs.load()) / seconds_since(begin) / 1e9;
}

}  // namespace espalier::probe
