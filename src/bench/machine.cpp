#include "bench/machine.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace espalier::bench {
namespace {

namespace fs = std::filesystem;

// The socket inode of the listener on a port in a /proc/net/tcp table: columns are number, local address:port in hex, remote,
// state (0A = listening), queues, timer, retransmits, uid, timeout, inode.
std::string listening_inode(const std::string& table_path, uint16_t port) {
    std::ifstream table(table_path);
    const std::string wanted = fmt::format(":{:04X}", port);
    std::string line;
    while (std::getline(table, line)) {
        std::istringstream fields(line);
        std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
        fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
        if (state == "0A" && local.ends_with(wanted)) return inode;
    }
    return "";
}

bool holds_socket(const fs::path& process, const std::string& inode) {
    std::error_code ec;
    const std::string wanted = "socket:[" + inode + "]";
    for (fs::directory_iterator it(process / "fd", ec), end; !ec && it != end; it.increment(ec)) {
        std::error_code link_error;
        if (fs::read_symlink(it->path(), link_error).string() == wanted) return true;
    }
    return false;
}

}  // namespace

bool is_loopback(const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::optional<int> listening_pid(uint16_t port, const std::string& proc_root) {
    std::string inode = listening_inode(proc_root + "/net/tcp", port);
    if (inode.empty()) inode = listening_inode(proc_root + "/net/tcp6", port);
    if (inode.empty()) return std::nullopt;
    std::error_code ec;
    for (fs::directory_iterator it(proc_root, ec), end; !ec && it != end; it.increment(ec)) {
        const std::string name = it->path().filename().string();
        int pid = 0;
        const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
        if (error != std::errc() || last != name.data() + name.size()) continue;
        if (holds_socket(it->path(), inode)) return pid;
    }
    return std::nullopt;
}

std::optional<ProcessMemory> process_memory(int pid, const std::string& proc_root) {
    std::ifstream status(fmt::format("{}/{}/status", proc_root, pid));
    ProcessMemory memory;
    std::string key;
    int64_t kib = 0;
    std::string line;
    while (std::getline(status, line)) {
        std::istringstream fields(line);
        if (!(fields >> key >> kib)) continue;
        if (key == "VmRSS:") memory.rss_bytes = kib * 1024;
        if (key == "VmHWM:") memory.rss_peak_bytes = kib * 1024;
    }
    if (memory.rss_bytes == 0) return std::nullopt;
    return memory;
}

}  // namespace espalier::bench
