// Facts about the server's process, read from /proc when it runs on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace espalier::bench {

// True for names and addresses of this machine's loopback.
bool is_loopback(const std::string& host);

// The process that listens on a TCP port, found through proc_root (tests give a made-up tree). nullopt when none is visible.
std::optional<int> listening_pid(uint16_t port, const std::string& proc_root = "/proc");

struct ProcessMemory {
    int64_t rss_bytes = 0;
    int64_t rss_peak_bytes = 0;
};
std::optional<ProcessMemory> process_memory(int pid, const std::string& proc_root = "/proc");

}  // namespace espalier::bench
