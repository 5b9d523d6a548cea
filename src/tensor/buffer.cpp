#include "tensor/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

namespace espalier {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::allocate(size_t bytes) {
    Buffer buffer;
    if (bytes == 0) return buffer;
    const size_t alignment = bytes >= kHugePage ? kHugePage : 4096;
    if (bytes > SIZE_MAX - 2 * alignment) return exhausted(fmt::format("cannot allocate {} bytes", bytes));
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    const size_t mapping_bytes = alignment > 4096 ? rounded + alignment : rounded;
    void* mapping = ::mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return exhausted(fmt::format("cannot allocate {} bytes of memory", bytes));
    const auto address = (reinterpret_cast<uintptr_t>(mapping) + alignment - 1) / alignment * alignment;
    if (alignment == kHugePage) ::madvise(reinterpret_cast<void*>(address), rounded, MADV_HUGEPAGE);
    buffer.mapping_ = mapping;
    buffer.mapping_bytes_ = mapping_bytes;
    buffer.data_ = reinterpret_cast<std::byte*>(address);
    buffer.bytes_ = bytes;
    return buffer;
}

Buffer::~Buffer() {
    if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

}  // namespace espalier
