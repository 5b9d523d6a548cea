#include "quant/row_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace espalier::quant {

Result<RowFile> RowFile::open(const std::string& path, int64_t width) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return invalid_input(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
    return RowFile(path, fd, width);
}

RowFile::RowFile(RowFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), width_(other.width_) {}

RowFile& RowFile::operator=(RowFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(width_, other.width_);
    return *this;
}

RowFile::~RowFile() {
    if (fd_ >= 0) ::close(fd_);
}

Error RowFile::system_error(const char* action) const {
    return invalid_input(fmt::format("{}: cannot {}: {}", path_, action, std::strerror(errno)));
}

Status RowFile::read(int64_t row, std::span<float> values) const {
    auto bytes = std::as_writable_bytes(values);
    off_t at = static_cast<off_t>(row * width_ * static_cast<int64_t>(sizeof(float)));
    while (!bytes.empty()) {
        const ssize_t n = ::pread(fd_, bytes.data(), bytes.size(), at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error("read");
        if (n == 0)
            return invalid_input(fmt::format("{}: the file is shorter than it was; remove its folder and start again", path_));
        bytes = bytes.subspan(static_cast<size_t>(n));
        at += n;
    }
    return {};
}

Status RowFile::write(int64_t row, std::span<const float> values) {
    auto bytes = std::as_bytes(values);
    off_t at = static_cast<off_t>(row * width_ * static_cast<int64_t>(sizeof(float)));
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return system_error("write");
        bytes = bytes.subspan(static_cast<size_t>(n));
        at += n;
    }
    return {};
}

Status RowFile::flush() {
    return ::fdatasync(fd_) == 0 ? Status() : Status(system_error("flush"));
}

}  // namespace espalier::quant
