// Files of the disk store: the system calls, with results instead of errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace espalier::cache {

// An open file. Move-only; closed by the destructor.
class DiskFile {
public:
    enum class Mode { read, read_write, create };  // create: exists or not, read and write, 0600
    // Errors: invalid_input with the system's reason.
    static Result<DiskFile> open(const std::string& path, Mode mode);

    DiskFile() = default;
    DiskFile(DiskFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
    DiskFile& operator=(DiskFile&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(fd_, other.fd_);
        return *this;
    }
    DiskFile(const DiskFile&) = delete;
    DiskFile& operator=(const DiskFile&) = delete;
    ~DiskFile();

    const std::string& path() const { return path_; }
    Result<uint64_t> size() const;
    // Fills `out` from `offset`. Errors: corrupt_data when the file ends before, exhausted when it cannot be read.
    Status read_at(std::span<std::byte> out, uint64_t offset) const;
    // Errors: exhausted with the system's reason.
    Status write_at(std::span<const std::byte> bytes, uint64_t offset);
    Status write_at(std::string_view bytes, uint64_t offset) { return write_at(std::as_bytes(std::span(bytes)), offset); }
    Status truncate(uint64_t bytes);
    // Gives the blocks of [offset, offset + bytes) back; they read as zeros. False: this file system cannot.
    bool punch(uint64_t offset, uint64_t bytes);
    // Contents have reached the disk.
    Status sync();

private:
    std::string path_;
    int fd_ = -1;
};

// What a finished write survives. The order of writes is the same; only power_cut waits for the disk.
enum class Durability { kill, power_cut };

// A directory held by this process alone, until destroyed. The kernel lets go of it when the process ends in any way.
class DirectoryLock {
public:
    // Works for a read-only directory too. Errors: exhausted when somebody else holds it, invalid_input when it is no directory.
    static Result<DirectoryLock> acquire(const std::string& directory, Durability durability);
    DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), durability_(other.durability_) {}
    DirectoryLock& operator=(DirectoryLock&&) = delete;
    ~DirectoryLock();

    // Renames and removals in the directory are as durable as asked for.
    Status sync() const;
    // The same of a file's contents.
    Status sync(DiskFile& file) const { return durability_ == Durability::kill ? Status() : file.sync(); }

private:
    DirectoryLock(int fd, Durability durability) : fd_(fd), durability_(durability) {}
    int fd_;
    Durability durability_;
};

struct DirectoryFile {
    std::string name;
    uint64_t bytes = 0;  // length, not blocks
    int64_t modified_ns = 0;
};
// The regular files of a directory, by name. Errors: invalid_input.
Result<std::vector<DirectoryFile>> list_directory(const std::string& directory);

// Makes the directory and its missing parents with mode 0700. One that exists stays as it is. Errors: invalid_input.
Status make_private_directory(const std::string& directory);
// Group or others may enter the directory.
bool is_open_to_others(const std::string& directory);
// Bytes that may still be written to the directory's file system; 0 if unknown.
uint64_t free_disk_bytes(const std::string& directory);
bool is_writable_directory(const std::string& directory);
// Sets the modification time; best effort.
void set_modified(const std::string& path, int64_t modified_ns);
// Nanoseconds since 1970.
int64_t unix_now_ns();
// From the system's random source.
uint64_t random_id();
std::string random_bytes(size_t n);

// While it lives, a process with a file size limit (ulimit -f) gets an error from a write instead of a deadly signal, in this
// thread.
class FileSizeSignalBlock {
public:
    FileSizeSignalBlock();
    ~FileSizeSignalBlock();
    FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
    FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

private:
    bool was_blocked_ = false;
};

}  // namespace espalier::cache
