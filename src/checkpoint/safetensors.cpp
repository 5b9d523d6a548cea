#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "checkpoint/names.h"

namespace espalier::checkpoint {
namespace {

struct DtypeName {
    std::string_view name;
    size_t bits;
};

// All types of the format, so that sizes can be checked also for tensors that nothing will use.
constexpr DtypeName kDtypeNames[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

std::optional<size_t> dtype_bits(std::string_view name) {
    for (const auto& entry : kDtypeNames) {
        if (entry.name == name) return entry.bits;
    }
    return std::nullopt;
}

// Reads the header as a stream of events: no tree in memory, no recursion, and a repeated key is seen (a tree would hide it).
class HeaderReader {
public:
    using number_integer_t = int64_t;
    using number_unsigned_t = uint64_t;
    using number_float_t = double;
    using string_t = std::string;
    using binary_t = nlohmann::ordered_json::binary_t;

    std::vector<SafetensorsEntry> take_entries() { return std::move(entries_); }
    const std::string& problem() const { return problem_; }

    bool start_object(size_t) {
        if (place_ == Place::before) place_ = Place::top;
        else if (place_ == Place::top) start_value();
        else return fail("an object where none belongs");
        return true;
    }
    bool end_object() {
        if (place_ == Place::tensor) return finish_tensor();
        place_ = place_ == Place::metadata ? Place::top : Place::after;
        return true;
    }
    bool key(std::string& text) {
        if (place_ == Place::metadata) return true;
        if (place_ == Place::tensor) return start_field(text);
        name_ = text;
        if (!names_.insert(text).second) return fail("the name occurs twice");
        if (names_.size() > kSafetensorsTensorsMax) return fail(fmt::format("more than {} tensors", kSafetensorsTensorsMax));
        return true;
    }
    bool string(std::string& text) {
        if (place_ == Place::metadata) return true;
        if (place_ == Place::tensor && field_ == Field::dtype) {
            entry_.dtype_name = text;
            return true;
        }
        return fail("a string where none belongs");
    }
    bool start_array(size_t) {
        if (place_ != Place::tensor || field_ == Field::dtype || is_in_array_) return fail("an array where none belongs");
        is_in_array_ = true;
        return true;
    }
    bool end_array() {
        is_in_array_ = false;
        return true;
    }
    bool number_unsigned(uint64_t value) {
        if (!is_in_array_) return fail("a number where none belongs");
        if (field_ == Field::data_offsets) {
            offsets_.push_back(value);
            return offsets_.size() <= 2 || fail("data_offsets has more than two numbers");
        }
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            return fail(fmt::format("extent {} in shape is beyond 2^63", value));
        }
        entry_.shape.push_back(static_cast<int64_t>(value));
        return entry_.shape.size() <= kSafetensorsRankMax || fail(fmt::format("more than {} dimensions", kSafetensorsRankMax));
    }
    bool number_integer(int64_t value) { return fail(fmt::format("negative number {}", value)); }
    bool number_float(double, const std::string&) { return fail("a number that is not an integer (or beyond 2^64)"); }
    bool null() { return fail("null where a value belongs"); }
    bool boolean(bool) { return fail("true or false where a value belongs"); }
    bool binary(binary_t&) { return fail("binary value"); }
    bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
        problem_ = fmt::format("header is not valid JSON at its byte {}", position);
        return false;
    }

private:
    enum class Place { before, top, metadata, tensor, after };
    enum class Field { none, dtype, shape, data_offsets };

    bool fail(std::string_view reason) {
        problem_ = name_.empty() ? fmt::format("header: {}", reason) : fmt::format("header, '{}': {}", printable(name_), reason);
        return false;
    }
    void start_value() {
        place_ = name_ == "__metadata__" ? Place::metadata : Place::tensor;
        entry_ = {};
        entry_.name = name_;
        offsets_.clear();
        has_dtype_ = has_shape_ = has_offsets_ = false;
        field_ = Field::none;
    }
    bool start_field(const std::string& text) {
        bool* seen = nullptr;
        if (text == "dtype") {
            field_ = Field::dtype;
            seen = &has_dtype_;
        } else if (text == "shape") {
            field_ = Field::shape;
            seen = &has_shape_;
        } else if (text == "data_offsets") {
            field_ = Field::data_offsets;
            seen = &has_offsets_;
        } else {
            return fail(fmt::format("unknown key '{}', expected dtype, shape, data_offsets", printable(text)));
        }
        if (*seen) return fail(fmt::format("key '{}' occurs twice", text));
        *seen = true;
        return true;
    }
    bool finish_tensor() {
        place_ = Place::top;
        if (!has_dtype_ || !has_shape_ || offsets_.size() != 2) return fail("needs dtype, shape and two data_offsets");
        entry_.begin = offsets_[0];
        entry_.end = offsets_[1];
        entries_.push_back(std::move(entry_));
        name_.clear();
        return true;
    }

    Place place_ = Place::before;
    Field field_ = Field::none;
    bool is_in_array_ = false;
    bool has_dtype_ = false;
    bool has_shape_ = false;
    bool has_offsets_ = false;
    std::string name_;
    SafetensorsEntry entry_;
    std::vector<uint64_t> offsets_;
    std::vector<SafetensorsEntry> entries_;
    std::unordered_set<std::string> names_;
    std::string problem_;
};

// Bytes that a shape of that type takes, or nothing when the product leaves 64 bits or is no whole number of bytes.
std::optional<uint64_t> tensor_bytes(std::span<const int64_t> shape, size_t bits) {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    uint64_t n = bits;
    for (const int64_t extent : shape) {
        if (__builtin_mul_overflow(n, static_cast<uint64_t>(extent), &n)) return std::nullopt;
    }
    if (n % 8 != 0) return std::nullopt;
    return n / 8;
}

Status check_entry(const SafetensorsEntry& entry, uint64_t data_bytes, std::string_view what) {
    const auto name = printable(entry.name);
    const auto bits = dtype_bits(entry.dtype_name);
    if (!bits) return corrupt_data(fmt::format("{}: '{}' has the unknown type '{}'", what, name, printable(entry.dtype_name)));
    if (entry.begin > entry.end || entry.end > data_bytes) {
        return corrupt_data(fmt::format(
            "{}: '{}' has data_offsets [{}, {}] but the file holds {} data bytes; it may be truncated, fetch it again", what,
            name, entry.begin, entry.end, data_bytes));
    }
    const auto bytes = tensor_bytes(entry.shape, *bits);
    if (!bytes) {
        return corrupt_data(fmt::format("{}: '{}' has shape {} {}, which is no possible size", what, name, entry.dtype_name,
                                        shape_text(entry.shape)));
    }
    if (*bytes != entry.end - entry.begin) {
        return corrupt_data(fmt::format("{}: '{}' has {} bytes of data, but {} {} needs {}", what, name, entry.end - entry.begin,
                                        entry.dtype_name, shape_text(entry.shape), *bytes));
    }
    return {};
}

Status check_ranges(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes, std::string_view what) {
    for (const auto& entry : entries) TRY(check_entry(entry, data_bytes, what));
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
    uint64_t covered = 0;
    for (const auto& entry : entries) {
        if (entry.begin < covered) {
            return corrupt_data(fmt::format("{}: '{}' starts at data byte {}, inside the tensor before it, which ends at {}",
                                            what, printable(entry.name), entry.begin, covered));
        }
        if (entry.begin > covered) {
            return corrupt_data(fmt::format("{}: data bytes {} to {} belong to no tensor (before '{}')", what, covered,
                                            entry.begin, printable(entry.name)));
        }
        covered = entry.end;
    }
    if (covered != data_bytes) {
        return corrupt_data(fmt::format("{}: {} data bytes after the last tensor belong to none", what, data_bytes - covered));
    }
    return {};
}

}  // namespace

std::optional<Dtype> dtype_from_name(std::string_view name) {
    for (const auto dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f8_e4m3, Dtype::u8, Dtype::i8, Dtype::i32, Dtype::i64}) {
        if (to_string(dtype) == name) return dtype;
    }
    return std::nullopt;
}

Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file, std::string_view what) {
    if (file.size() < 8) {
        return corrupt_data(
            fmt::format("{}: {} bytes long, a safetensors file has at least 8; fetch it again", what, file.size()));
    }
    uint64_t header_bytes = 0;
    for (size_t i = 0; i < 8; ++i) header_bytes |= static_cast<uint64_t>(file[i]) << (8 * i);
    if (header_bytes > kSafetensorsHeaderBytesMax) {
        return corrupt_data(fmt::format("{}: header of {} bytes, the limit is {}; not a safetensors file?", what, header_bytes,
                                        kSafetensorsHeaderBytesMax));
    }
    if (header_bytes > file.size() - 8) {
        return corrupt_data(fmt::format("{}: header of {} bytes in a file of {}; it is truncated, fetch it again", what,
                                        header_bytes, file.size()));
    }
    const auto* text = reinterpret_cast<const char*>(file.data()) + 8;
    if (header_bytes == 0 || *text != '{') return corrupt_data(fmt::format("{}: header does not start with '{{'", what));
    HeaderReader reader;
    if (!nlohmann::ordered_json::sax_parse(text, text + header_bytes, &reader)) {
        return corrupt_data(fmt::format("{}: {}", what, reader.problem()));
    }
    auto entries = reader.take_entries();
    TRY(check_ranges(entries, file.size() - 8 - header_bytes, what));
    for (auto& entry : entries) {
        entry.begin += 8 + header_bytes;
        entry.end += 8 + header_bytes;
    }
    return entries;
}

}  // namespace espalier::checkpoint
