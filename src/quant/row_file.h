// Hidden rows of many tokens on disk: [n, width] floats, so that memory does not grow with the number of tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace espalier::quant {

class RowFile {
public:
    // Opens or creates the file. Errors: invalid_input with the system's reason.
    static Result<RowFile> open(const std::string& path, int64_t width);
    RowFile(RowFile&& other) noexcept;
    RowFile& operator=(RowFile&& other) noexcept;
    RowFile(const RowFile&) = delete;
    RowFile& operator=(const RowFile&) = delete;
    ~RowFile();

    int64_t width() const { return width_; }
    // values holds whole rows, from `row` on. Errors: invalid_input: the system's reason, or the file is shorter.
    Status read(int64_t row, std::span<float> values) const;
    Status write(int64_t row, std::span<const float> values);
    // Everything written is on the disk.
    Status flush();

private:
    RowFile(std::string path, int fd, int64_t width) : path_(std::move(path)), fd_(fd), width_(width) {}
    Error system_error(const char* action) const;
    std::string path_;
    int fd_ = -1;
    int64_t width_ = 0;
};

}  // namespace espalier::quant
