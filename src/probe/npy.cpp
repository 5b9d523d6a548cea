#include "probe/npy.h"

#include <fmt/format.h>

#include <cstring>

#include "base/mapped_file.h"

namespace espalier::probe {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};

std::string shape_text(std::span<const int64_t> shape) {
    std::string text = "(";
    for (const int64_t n : shape) text += fmt::format("{}, ", n);
    if (shape.size() > 1) text.resize(text.size() - 2);
    else if (shape.size() == 1) text.pop_back();
    return text + ")";
}

}  // namespace

Status write_npy(const std::string& path, std::span<const int64_t> shape, std::span<const float> values) {
    std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape_text(shape));
    const size_t prefix = kMagic.size() + 4;
    header.append(64 - (prefix + header.size() + 1) % 64, ' ');
    header += '\n';
    std::string bytes(kMagic);
    bytes += '\x01';
    bytes += '\x00';
    bytes += static_cast<char>(header.size() & 0xff);
    bytes += static_cast<char>(header.size() >> 8);
    bytes += header;
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    return write_file_atomic(path, bytes);
}

Result<NpyArray> read_npy(const std::string& path) {
    TRY_ASSIGN(const std::string bytes, read_file(path, size_t{8} << 30));
    const auto bad = [&](const char* what) { return corrupt_data(fmt::format("{}: not a float32 .npy file: {}", path, what)); };
    if (bytes.size() < 10 || std::string_view(bytes).substr(0, 6) != kMagic) return bad("magic bytes missing");
    const bool is_v1 = bytes[6] == 1;
    const size_t length_bytes = is_v1 ? 2 : 4;
    if (bytes.size() < 8 + length_bytes) return bad("truncated header");
    size_t header_size = 0;
    for (size_t i = 0; i < length_bytes; ++i)
        header_size |= static_cast<size_t>(static_cast<unsigned char>(bytes[8 + i])) << (8 * i);
    const size_t data_begin = 8 + length_bytes + header_size;
    if (data_begin > bytes.size()) return bad("truncated header");
    const std::string_view header = std::string_view(bytes).substr(8 + length_bytes, header_size);
    if (header.find("'<f4'") == std::string_view::npos)
        return unsupported(fmt::format("{}: only little-endian float32 is read", path));
    if (header.find("'fortran_order': False") == std::string_view::npos)
        return unsupported(fmt::format("{}: only C order is read", path));
    const size_t open = header.find('(');
    const size_t close = header.find(')', open);
    if (open == std::string_view::npos || close == std::string_view::npos) return bad("no shape");
    NpyArray array;
    size_t count = 1;
    for (size_t i = open + 1; i < close;) {
        if (header[i] < '0' || header[i] > '9') {
            ++i;
            continue;
        }
        int64_t n = 0;
        while (i < close && header[i] >= '0' && header[i] <= '9') {
            n = n * 10 + (header[i++] - '0');
            if (n > (int64_t{1} << 40)) return bad("a dimension is too large");
        }
        array.shape.push_back(n);
        if (n > 0 && count > (size_t{1} << 40) / static_cast<size_t>(n)) return bad("too many elements");
        count *= static_cast<size_t>(n);
    }
    if (bytes.size() - data_begin != count * sizeof(float)) return bad("size does not match the shape");
    array.values.resize(count);
    std::memcpy(array.values.data(), bytes.data() + data_begin, count * sizeof(float));
    return array;
}

}  // namespace espalier::probe
