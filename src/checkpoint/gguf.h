// Reads the header of a GGUF file (versions 2 and 3): metadata and the list of tensors, as views of the mapped file.
//
// Layout (github.com/ggml-org/ggml, docs/gguf.md): "GGUF", u32 version, u64 tensors, u64 metadata entries, the entries, the
// tensor infos, padding to the alignment, the data. All numbers little-endian; a string is u64 length and bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace espalier::checkpoint {

inline constexpr size_t kGgufTensorsMax = 100'000;
inline constexpr size_t kGgufKeysMax = 100'000;
inline constexpr size_t kGgufNameBytesMax = 1024;

// A metadata value. Numbers are kept as bytes and read on demand.
class GgufValue {
public:
    enum class Kind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

    static GgufValue of_number(Kind kind, std::span<const std::byte> bytes) { return {kind, false, bytes}; }
    static GgufValue of_array(Kind kind, std::span<const std::byte> bytes) { return {kind, true, bytes}; }
    static GgufValue of_strings(bool is_array, std::vector<std::string_view> strings);

    bool is_array() const { return is_array_; }
    Kind kind() const { return kind_; }  // of the value, or of the array's elements
    size_t size() const;                 // elements; 1 for a single value

    // Element i as an integer, float, truth value or text; empty when it is of another kind or out of range. Integers of any
    // width are integers, floats of either width and integers are floats.
    std::optional<int64_t> integer(size_t i = 0) const;
    // The same of a value that is no array.
    std::optional<int64_t> single_integer() const { return is_array_ ? std::nullopt : integer(); }
    std::optional<double> number(size_t i = 0) const;
    std::optional<bool> boolean(size_t i = 0) const;
    std::optional<std::string_view> text(size_t i = 0) const;

    // "u32 5", "array of 12 string": for error messages.
    std::string describe() const;

private:
    GgufValue(Kind kind, bool is_array, std::span<const std::byte> bytes) : kind_(kind), is_array_(is_array), bytes_(bytes) {}
    std::span<const std::byte> element(size_t i) const;

    Kind kind_;
    bool is_array_;
    std::span<const std::byte> bytes_;
    std::vector<std::string_view> strings_;
};

// Borrowed from the file's bytes.
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// Null when there is no such key.
const GgufValue* find_entry(const GgufMetadata& metadata, std::string_view key);

// A tensor type of ggml: values are stored in blocks.
struct GgufTensorType {
    uint32_t id;
    std::string_view name;  // "Q4_K"
    int64_t block_values;
    int64_t block_bytes;
};

// Null for an id that this program does not know.
const GgufTensorType* gguf_tensor_type(uint32_t id);

struct GgufTensor {
    std::string name;
    const GgufTensorType* type = nullptr;
    std::vector<int64_t> shape;  // slowest first, as everywhere else (the file has it the other way round)
    std::span<const std::byte> data;
};

struct GgufFile {
    uint32_t version = 0;
    GgufMetadata metadata;
    std::vector<GgufTensor> tensors;  // in the file's order; they do not overlap
};

// Whether the bytes begin as a GGUF file does.
bool has_gguf_magic(std::span<const std::byte> file);

// Parses a whole file; the result borrows from `file`. Errors: corrupt_data, unsupported (version 1, big-endian, an unknown
// tensor type), each one line with `what`, the place, what was found and what was expected. Never crashes on any bytes, and needs
// memory in proportion to the file at most.
Result<GgufFile> parse_gguf(std::span<const std::byte> file, std::string_view what);

}  // namespace espalier::checkpoint
