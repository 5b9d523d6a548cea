#include "cache/disk_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/check.h"

namespace espalier::cache {
namespace {

std::string reason(const std::string& path, const char* action) {
    return fmt::format("{}: cannot {}: {}", path, action, std::strerror(errno));
}

int64_t to_ns(const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<DiskFile> DiskFile::open(const std::string& path, Mode mode) {
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a FIFO must not block here
    flags |= mode == Mode::read ? O_RDONLY : O_RDWR;
    if (mode == Mode::create) flags |= O_CREAT;
    DiskFile file;
    file.path_ = path;
    file.fd_ = ::open(path.c_str(), flags, 0600);
    if (file.fd_ < 0) return invalid_input(reason(path, "open"));
    struct stat info {};
    if (::fstat(file.fd_, &info) != 0) return invalid_input(reason(path, "stat"));
    if (!S_ISREG(info.st_mode)) return invalid_input(fmt::format("{}: not a regular file", path));
    return file;
}

DiskFile::~DiskFile() {
    if (fd_ >= 0) ::close(fd_);
}

Result<uint64_t> DiskFile::size() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return invalid_input(reason(path_, "stat"));
    return static_cast<uint64_t>(info.st_size);
}

Status DiskFile::read_at(std::span<std::byte> out, uint64_t offset) const {
    size_t done = 0;
    while (done < out.size()) {
        const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return exhausted(reason(path_, "read"));
        if (n == 0) {
            return corrupt_data(fmt::format("{}: ends at byte {}, {} were expected: the file is cut off", path_, offset + done,
                                            offset + out.size()));
        }
        done += static_cast<size_t>(n);
    }
    return {};
}

Status DiskFile::write_at(std::span<const std::byte> bytes, uint64_t offset) {
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return exhausted(reason(path_, "write"));
        done += static_cast<size_t>(n);
    }
    return {};
}

Status DiskFile::truncate(uint64_t bytes) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return exhausted(reason(path_, "truncate"));
    return {};
}

bool DiskFile::punch(uint64_t offset, uint64_t bytes) {
    return ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes)) ==
           0;
}

Status DiskFile::sync() {
    if (::fdatasync(fd_) != 0) return exhausted(reason(path_, "write to the disk"));
    return {};
}

Result<DirectoryLock> DirectoryLock::acquire(const std::string& directory, Durability durability) {
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return invalid_input(reason(directory, "open as a directory"));
    DirectoryLock lock(fd, durability);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno == EWOULDBLOCK)
        return exhausted(fmt::format("{}: in use by another process; stop that one or name another directory", directory));
    return invalid_input(reason(directory, "lock"));
}

DirectoryLock::~DirectoryLock() {
    if (fd_ >= 0) ::close(fd_);
}

Status DirectoryLock::sync() const {
    if (durability_ == Durability::power_cut && ::fsync(fd_) != 0)
        return exhausted(fmt::format("the directory cannot be written to the disk: {}", std::strerror(errno)));
    return {};
}

Result<std::vector<DirectoryFile>> list_directory(const std::string& directory) {
    DIR* handle = ::opendir(directory.c_str());
    if (handle == nullptr) return invalid_input(reason(directory, "list"));
    std::vector<DirectoryFile> files;
    while (const dirent* item = ::readdir(handle)) {
        struct stat info {};
        if (::fstatat(::dirfd(handle), item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) continue;
        files.push_back({item->d_name, static_cast<uint64_t>(info.st_size), to_ns(info.st_mtim)});
    }
    ::closedir(handle);
    std::sort(files.begin(), files.end(), [](const DirectoryFile& a, const DirectoryFile& b) { return a.name < b.name; });
    return files;
}

Status make_private_directory(const std::string& directory) {
    struct stat info {};
    if (::stat(directory.c_str(), &info) != 0) {
        const std::string parent = std::filesystem::path(directory).parent_path().string();
        if (!parent.empty() && parent != directory) TRY(make_private_directory(parent));
        if (::mkdir(directory.c_str(), 0700) == 0) return {};
        if (errno != EEXIST || ::stat(directory.c_str(), &info) != 0)
            return invalid_input(reason(directory, "make the directory"));
    }
    if (!S_ISDIR(info.st_mode)) return invalid_input(fmt::format("{}: exists and is not a directory", directory));
    return {};
}

bool is_open_to_others(const std::string& directory) {
    struct stat info {};
    return ::stat(directory.c_str(), &info) == 0 && (info.st_mode & 077) != 0;
}

uint64_t free_disk_bytes(const std::string& directory) {
    struct statvfs info {};
    if (::statvfs(directory.c_str(), &info) != 0) return 0;
    return uint64_t{info.f_bavail} * info.f_frsize;
}

bool is_writable_directory(const std::string& directory) {
    return ::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

void set_modified(const std::string& path, int64_t modified_ns) {
    timespec times[2];
    times[0].tv_nsec = UTIME_OMIT;
    times[0].tv_sec = 0;
    times[1].tv_sec = modified_ns / 1'000'000'000;
    times[1].tv_nsec = modified_ns % 1'000'000'000;
    ::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

int64_t unix_now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string random_bytes(size_t n) {
    std::string bytes(n, '\0');
    size_t done = 0;
    while (done < n) {
        const ssize_t got = ::getrandom(bytes.data() + done, n - done, 0);
        CHECK(got > 0 || errno == EINTR, "the system's random source answers");
        if (got > 0) done += static_cast<size_t>(got);
    }
    return bytes;
}

uint64_t random_id() {
    uint64_t id = 0;
    const std::string bytes = random_bytes(sizeof id);
    std::memcpy(&id, bytes.data(), sizeof id);
    return id;
}

namespace {

sigset_t file_size_signal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
}

}  // namespace

FileSizeSignalBlock::FileSizeSignalBlock() {
    const sigset_t set = file_size_signal();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &set, &before);
    was_blocked_ = sigismember(&before, SIGXFSZ) == 1;
}

FileSizeSignalBlock::~FileSizeSignalBlock() {
    if (was_blocked_) return;
    const sigset_t set = file_size_signal();
    const timespec no_time{};
    while (sigtimedwait(&set, nullptr, &no_time) == SIGXFSZ) {
    }
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace espalier::cache
