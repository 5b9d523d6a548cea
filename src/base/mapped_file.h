// A read-only memory map of a whole file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace espalier {

class MappedFile {
public:
    // Maps `path` read-only. Errors: invalid_input with the path and the system's reason (missing, a directory, no permission).
    // An empty file maps to an empty span.
    static Result<MappedFile> open(const std::string& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    // The bytes live as long as this object. A file truncated by another process while mapped raises SIGBUS: callers that
    // must survive that read with read_file instead.
    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::string& path() const { return path_; }

    // Tells the kernel that [offset, offset + length) will not be needed soon (after packing). Never fails.
    void release(size_t offset, size_t length) const;

private:
    MappedFile() = default;
    std::string path_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

// The same for bytes that lie in one of the files; others are left alone.
void release_within(std::span<const MappedFile> files, std::span<const std::byte> bytes);

// Reads a whole file that may be at most bytes_max long. Errors: invalid_input (missing, unreadable), exhausted (too long).
Result<std::string> read_file(const std::string& path, size_t bytes_max);

// Writes through a temporary file in the same folder, fsync and rename: readers see the old or the new file, never a mixture.
// Errors: invalid_input (cannot write; the path is a device, link, pipe or folder, which a rename would replace).
Status write_file_atomic(const std::string& path, std::string_view bytes);

}  // namespace espalier
