#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace espalier {
namespace {

Error system_error(const std::string& path, const char* action) {
    return invalid_input(fmt::format("{}: cannot {}: {}", path, action, std::strerror(errno)));
}

struct FileDescriptor {
    int fd = -1;
    ~FileDescriptor() {
        if (fd >= 0) ::close(fd);
    }
};

// Opens a regular file and returns its size.
Result<size_t> open_regular(const std::string& path, FileDescriptor& file) {
    file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block here
    if (file.fd < 0) return system_error(path, "open");
    struct stat info {};
    if (::fstat(file.fd, &info) != 0) return system_error(path, "stat");
    if (!S_ISREG(info.st_mode)) return invalid_input(fmt::format("{}: not a regular file", path));
    return static_cast<size_t>(info.st_size);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
    FileDescriptor file;
    TRY_ASSIGN(const size_t size, open_regular(path, file));
    MappedFile mapped;
    mapped.path_ = path;
    mapped.size_ = size;
    if (size > 0) {
        void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
        if (data == MAP_FAILED) return system_error(path, "map");
        mapped.data_ = static_cast<const std::byte*>(data);
    }
    return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t length) const {
    if (data_ == nullptr || offset >= size_) return;
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t begin = (offset + page - 1) / page * page;
    const size_t end = std::min(size_, offset + length) / page * page;
    if (end > begin) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void release_within(std::span<const MappedFile> files, std::span<const std::byte> bytes) {
    for (const MappedFile& file : files) {
        const auto all = file.bytes();
        if (bytes.empty() || bytes.data() < all.data() || bytes.data() >= all.data() + all.size()) continue;
        file.release(static_cast<size_t>(bytes.data() - all.data()), bytes.size());
    }
}

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
    FileDescriptor file;
    TRY_ASSIGN(const size_t size, open_regular(path, file));
    if (size > bytes_max) return exhausted(fmt::format("{}: {} bytes, the limit is {}", path, size, bytes_max));
    std::string text(size, '\0');
    size_t done = 0;
    while (done < size) {
        const ssize_t n = ::read(file.fd, text.data() + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(path, "read");
        if (n == 0) break;
        done += static_cast<size_t>(n);
    }
    text.resize(done);
    return text;
}

Status write_file_atomic(const std::string& path, std::string_view bytes) {
    struct stat existing {};
    if (::lstat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
        return invalid_input(fmt::format("{}: exists and is not a regular file; it would be replaced: name another file", path));
    }
    const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
    FileDescriptor file;
    file.fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file.fd < 0) return system_error(temporary, "create");
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = ::write(file.fd, bytes.data() + done, bytes.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            Error error = system_error(temporary, "write");
            ::unlink(temporary.c_str());
            return error;
        }
        done += static_cast<size_t>(n);
    }
    if (::fsync(file.fd) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
        Error error = system_error(path, "write");
        ::unlink(temporary.c_str());
        return error;
    }
    return {};
}

}  // namespace espalier
