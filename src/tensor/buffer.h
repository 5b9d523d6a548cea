// Owned, aligned memory for weights, states and scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace espalier {

// A zero-filled block from mmap, 2 MiB aligned and advised for huge pages when it is large (20-30 % of read bandwidth).
// Move-only; released by the destructor. Pages are committed on first touch.
class Buffer {
public:
    Buffer() = default;
    // Errors: exhausted, with the number of bytes asked for. bytes == 0 gives an empty buffer.
    static Result<Buffer> allocate(size_t bytes);

    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    std::byte* data() { return data_; }
    const std::byte* data() const { return data_; }
    size_t bytes() const { return bytes_; }

    template <class T>
    T* as() {
        return reinterpret_cast<T*>(data_);
    }
    template <class T>
    const T* as() const {
        return reinterpret_cast<const T*>(data_);
    }

private:
    void swap(Buffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        std::swap(mapping_, other.mapping_);
        std::swap(mapping_bytes_, other.mapping_bytes_);
    }
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
    void* mapping_ = nullptr;
    size_t mapping_bytes_ = 0;
};

}  // namespace espalier
