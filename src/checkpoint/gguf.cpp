#include "checkpoint/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "checkpoint/names.h"

namespace espalier::checkpoint {
namespace {

using Kind = GgufValue::Kind;

constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMax = uint64_t{1} << 20;
constexpr uint32_t kRankMax = 4;
constexpr uint64_t kTensorInfoBytesMin = 24;  // name length, rank, type, offset
constexpr uint64_t kEntryBytesMin = 13;       // key length, kind, one byte

constexpr std::string_view kKindNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
constexpr uint8_t kKindBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Ids, names and block sizes of ggml's types (constants of the PyPI package gguf 0.19).
constexpr GgufTensorType kTensorTypes[] = {
    {0, "F32", 1, 4},        {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},     {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210}, {15, "Q8_K", 256, 292}, {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18}, {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},       {25, "I16", 1, 2},      {26, "I32", 1, 4},
    {27, "I64", 1, 8},       {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56}, {30, "BF16", 1, 2},     {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},  {41, "Q1_0", 128, 18},
};

template <class T>
T load(std::span<const std::byte> bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

// Walks through the header; every read is checked against the end.
class HeaderReader {
public:
    HeaderReader(std::span<const std::byte> file, std::string_view what) : file_(file), what_(what) {}

    size_t position() const { return at_; }
    uint64_t left() const { return file_.size() - at_; }

    template <class T>
    Result<T> number(std::string_view field) {
        TRY_ASSIGN(const auto bytes, take(sizeof(T), field));
        return load<T>(bytes);
    }

    Result<std::string_view> text(std::string_view field) {
        TRY_ASSIGN(const auto n_bytes, number<uint64_t>(field));
        TRY_ASSIGN(const auto bytes, take(n_bytes, field));
        return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }

    Result<std::span<const std::byte>> take(uint64_t n_bytes, std::string_view field) {
        if (n_bytes > left()) {
            return corrupt_data(
                fmt::format("{}: {} at byte {} needs {} bytes, the file has {} more; it is truncated or damaged, "
                            "fetch it again",
                            what_, field, at_, n_bytes, left()));
        }
        const auto bytes = file_.subspan(at_, n_bytes);
        at_ += n_bytes;
        return bytes;
    }

    // A number of things of which each takes at least bytes_min in the file.
    Result<size_t> count(std::string_view field, uint64_t bytes_min, uint64_t most) {
        const size_t where = at_;
        TRY_ASSIGN(const auto n, number<uint64_t>(field));
        if (n > most || n > left() / bytes_min) {
            return corrupt_data(
                fmt::format("{}: {} at byte {} is {}, at most {} fit into the {} bytes that follow; the file is "
                            "truncated or damaged, fetch it again",
                            what_, field, where, n, std::min(most, left() / bytes_min), left()));
        }
        return static_cast<size_t>(n);
    }

private:
    std::span<const std::byte> file_;
    std::string_view what_;
    size_t at_ = 0;
};

Result<Kind> read_kind(HeaderReader& reader, std::string_view what, std::string_view key) {
    TRY_ASSIGN(const auto kind, reader.number<uint32_t>("the kind of a metadata value"));
    if (kind >= std::size(kKindNames)) {
        return corrupt_data(fmt::format("{}: metadata '{}' is of kind {}, expected 0 to {}; the file is damaged, fetch it again",
                                        what, printable(key), kind, std::size(kKindNames) - 1));
    }
    return static_cast<Kind>(kind);
}

Result<GgufValue> read_array(HeaderReader& reader, std::string_view what, std::string_view key) {
    TRY_ASSIGN(const Kind kind, read_kind(reader, what, key));
    if (kind == Kind::array) {
        return unsupported(fmt::format("{}: metadata '{}' is an array of arrays, expected an array of numbers or strings", what,
                                       printable(key)));
    }
    const std::string field = fmt::format("the length of array '{}'", printable(key));
    if (kind != Kind::string) {
        const uint64_t size = kKindBytes[static_cast<size_t>(kind)];
        TRY_ASSIGN(const size_t n, reader.count(field, size, std::numeric_limits<uint64_t>::max()));
        TRY_ASSIGN(const auto bytes, reader.take(n * size, field));
        return GgufValue::of_array(kind, bytes);
    }
    TRY_ASSIGN(const size_t n, reader.count(field, sizeof(uint64_t), std::numeric_limits<uint64_t>::max()));
    std::vector<std::string_view> strings;
    strings.reserve(n);
    const std::string element = fmt::format("a string of array '{}'", printable(key));
    for (size_t i = 0; i < n; ++i) {
        TRY_ASSIGN(const auto text, reader.text(element));
        strings.push_back(text);
    }
    return GgufValue::of_strings(true, std::move(strings));
}

Result<GgufValue> read_value(HeaderReader& reader, std::string_view what, std::string_view key) {
    TRY_ASSIGN(const Kind kind, read_kind(reader, what, key));
    if (kind == Kind::array) return read_array(reader, what, key);
    if (kind == Kind::string) {
        TRY_ASSIGN(const auto text, reader.text("a metadata string"));
        return GgufValue::of_strings(false, {text});
    }
    TRY_ASSIGN(const auto bytes, reader.take(kKindBytes[static_cast<size_t>(kind)], "a metadata number"));
    return GgufValue::of_number(kind, bytes);
}

Result<std::string> read_name(HeaderReader& reader, std::string_view what, std::string_view field) {
    TRY_ASSIGN(const auto name, reader.text(field));
    if (name.empty() || name.size() > kGgufNameBytesMax) {
        return corrupt_data(
            fmt::format("{}: {} before byte {} has {} bytes, expected 1 to {}; the file is damaged, fetch it again", what, field,
                        reader.position(), name.size(), kGgufNameBytesMax));
    }
    return std::string(name);
}

Result<uint64_t> alignment_of(const GgufMetadata& metadata, std::string_view what) {
    const GgufValue* found = find_entry(metadata, "general.alignment");
    if (found == nullptr) return kAlignmentDefault;
    const auto value = found->single_integer();
    if (!value || *value < 1 || static_cast<uint64_t>(*value) > kAlignmentMax ||
        !std::has_single_bit(static_cast<uint64_t>(*value))) {
        return corrupt_data(fmt::format("{}: general.alignment is {}, expected a power of two from 1 to {}", what,
                                        found->describe(), kAlignmentMax));
    }
    return static_cast<uint64_t>(*value);
}

// A tensor as the header has it: its data's place is checked once the whole header is read.
struct TensorInfo {
    GgufTensor tensor;
    uint64_t offset = 0;
    uint64_t bytes = 0;
};

// Bytes that the shape takes. The first extent of the file (the last of `shape`) must be whole blocks.
Result<uint64_t> data_bytes(const GgufTensor& tensor, std::string_view what) {
    uint64_t n = 1;
    bool is_possible = true;
    for (const int64_t extent : tensor.shape)
        is_possible = is_possible && !__builtin_mul_overflow(n, static_cast<uint64_t>(extent), &n);
    const auto block = static_cast<uint64_t>(tensor.type->block_values);
    if (is_possible && !tensor.shape.empty() && static_cast<uint64_t>(tensor.shape.back()) % block != 0) {
        return corrupt_data(fmt::format("{}: tensor '{}' has rows of {} values, {} is stored in blocks of {}", what,
                                        printable(tensor.name), tensor.shape.back(), tensor.type->name, block));
    }
    uint64_t bytes = 0;
    if (!is_possible || n % block != 0 ||
        __builtin_mul_overflow(n / block, static_cast<uint64_t>(tensor.type->block_bytes), &bytes)) {
        return corrupt_data(fmt::format("{}: tensor '{}' has shape {} {}, which is no possible size", what,
                                        printable(tensor.name), tensor.type->name, shape_text(tensor.shape)));
    }
    return bytes;
}

Result<TensorInfo> read_tensor_info(HeaderReader& reader, std::string_view what) {
    TensorInfo info;
    GgufTensor& tensor = info.tensor;
    TRY_ASSIGN(tensor.name, read_name(reader, what, "a tensor name"));
    TRY_ASSIGN(const auto rank, reader.number<uint32_t>("the rank of a tensor"));
    if (rank > kRankMax) {
        return corrupt_data(
            fmt::format("{}: tensor '{}' has {} dimensions, expected at most {}; the file is damaged, fetch it again", what,
                        printable(tensor.name), rank, kRankMax));
    }
    for (uint32_t i = 0; i < rank; ++i) {
        TRY_ASSIGN(const auto extent, reader.number<uint64_t>("an extent of a tensor"));
        if (extent == 0 || extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            return corrupt_data(
                fmt::format("{}: tensor '{}' has an extent of {}, expected 1 to 2^63 - 1; the file is damaged, fetch "
                            "it again",
                            what, printable(tensor.name), extent));
        }
        tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
    }
    TRY_ASSIGN(const auto type, reader.number<uint32_t>("the type of a tensor"));
    tensor.type = gguf_tensor_type(type);
    if (tensor.type == nullptr) {
        return unsupported(
            fmt::format("{}: tensor '{}' has the type number {}, which this program does not know; use a file in BF16, "
                        "F16, Q8_0 or Q4_K_M",
                        what, printable(tensor.name), type));
    }
    TRY_ASSIGN(info.offset, reader.number<uint64_t>("the offset of a tensor"));
    TRY_ASSIGN(info.bytes, data_bytes(tensor, what));
    return info;
}

Status place_data(std::vector<TensorInfo>& infos, std::span<const std::byte> data, uint64_t alignment, std::string_view what) {
    for (auto& info : infos) {
        const auto name = printable(info.tensor.name);
        if (info.offset % alignment != 0) {
            return corrupt_data(fmt::format("{}: tensor '{}' starts at data byte {}, expected a multiple of the alignment {}",
                                            what, name, info.offset, alignment));
        }
        if (info.offset > data.size() || info.bytes > data.size() - info.offset) {
            return corrupt_data(
                fmt::format("{}: tensor '{}' needs {} bytes from data byte {}, the file holds {} data bytes; it is "
                            "truncated, fetch it again",
                            what, name, info.bytes, info.offset, data.size()));
        }
        info.tensor.data = data.subspan(info.offset, info.bytes);
    }
    std::vector<const TensorInfo*> order;
    for (const auto& info : infos) order.push_back(&info);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i) {
        if (order[i]->offset >= order[i - 1]->offset + order[i - 1]->bytes) continue;
        return corrupt_data(fmt::format("{}: tensor '{}' starts at data byte {}, inside '{}', which ends at {}", what,
                                        printable(order[i]->tensor.name), order[i]->offset, printable(order[i - 1]->tensor.name),
                                        order[i - 1]->offset + order[i - 1]->bytes));
    }
    return {};
}

Result<uint32_t> read_version(HeaderReader& reader, std::string_view what) {
    TRY_ASSIGN(const auto version, reader.number<uint32_t>("the version"));
    if (version == 2 || version == 3) return version;
    if ((version & 0xffffu) == 0) {
        return unsupported(fmt::format(
            "{}: a GGUF file for big-endian machines (version bytes {:08x}), expected a little-endian one", what, version));
    }
    return unsupported(
        fmt::format("{}: GGUF version {}, supported are 2 and 3; convert the model again with a current tool", what, version));
}

}  // namespace

GgufValue GgufValue::of_strings(bool is_array, std::vector<std::string_view> strings) {
    GgufValue value(Kind::string, is_array, {});
    value.strings_ = std::move(strings);
    return value;
}

size_t GgufValue::size() const {
    return kind_ == Kind::string ? strings_.size() : bytes_.size() / kKindBytes[static_cast<size_t>(kind_)];
}

std::span<const std::byte> GgufValue::element(size_t i) const {
    const size_t bytes = kKindBytes[static_cast<size_t>(kind_)];
    return bytes == 0 || i >= bytes_.size() / bytes ? std::span<const std::byte>() : bytes_.subspan(i * bytes, bytes);
}

std::optional<int64_t> GgufValue::integer(size_t i) const {
    const auto bytes = element(i);
    if (bytes.empty()) return std::nullopt;
    switch (kind_) {
        case Kind::u8: return load<uint8_t>(bytes);
        case Kind::i8: return load<int8_t>(bytes);
        case Kind::u16: return load<uint16_t>(bytes);
        case Kind::i16: return load<int16_t>(bytes);
        case Kind::u32: return load<uint32_t>(bytes);
        case Kind::i32: return load<int32_t>(bytes);
        case Kind::i64: return load<int64_t>(bytes);
        case Kind::u64: {
            const auto value = load<uint64_t>(bytes);
            if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
            return static_cast<int64_t>(value);
        }
        default: return std::nullopt;
    }
}

std::optional<double> GgufValue::number(size_t i) const {
    const auto bytes = element(i);
    if (bytes.empty()) return std::nullopt;
    if (kind_ == Kind::f32) return static_cast<double>(load<float>(bytes));
    if (kind_ == Kind::f64) return load<double>(bytes);
    const auto value = integer(i);
    return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

std::optional<bool> GgufValue::boolean(size_t i) const {
    const auto bytes = element(i);
    if (bytes.empty() || kind_ != Kind::boolean) return std::nullopt;
    return load<uint8_t>(bytes) != 0;
}

std::optional<std::string_view> GgufValue::text(size_t i) const {
    return i < strings_.size() ? std::optional(strings_[i]) : std::nullopt;
}

std::string GgufValue::describe() const {
    const auto kind = kKindNames[static_cast<size_t>(kind_)];
    if (is_array_) return fmt::format("an array of {} {}", size(), kind);
    if (kind_ == Kind::string) return fmt::format("'{}'", printable(strings_[0]));
    if (kind_ == Kind::boolean) return *boolean() ? "true" : "false";
    if (kind_ == Kind::u64) return fmt::format("{}", load<uint64_t>(bytes_));
    const auto whole = integer();
    return whole ? fmt::format("{}", *whole) : fmt::format("{}", *number());
}

const GgufTensorType* gguf_tensor_type(uint32_t id) {
    for (const auto& type : kTensorTypes) {
        if (type.id == id) return &type;
    }
    return nullptr;
}

const GgufValue* find_entry(const GgufMetadata& metadata, std::string_view key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? nullptr : &found->second;
}

bool has_gguf_magic(std::span<const std::byte> file) {
    return file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
}

Result<GgufFile> parse_gguf(std::span<const std::byte> file, std::string_view what) {
    if (!has_gguf_magic(file)) {
        return corrupt_data(fmt::format("{}: does not begin with 'GGUF'; not a GGUF file, or damaged: fetch it again", what));
    }
    HeaderReader reader(file, what);
    TRY(reader.take(4, "the magic"));
    GgufFile out;
    TRY_ASSIGN(out.version, read_version(reader, what));
    TRY_ASSIGN(const size_t n_tensors, reader.count("the number of tensors", kTensorInfoBytesMin, kGgufTensorsMax));
    TRY_ASSIGN(const size_t n_keys, reader.count("the number of metadata entries", kEntryBytesMin, kGgufKeysMax));
    for (size_t i = 0; i < n_keys; ++i) {
        TRY_ASSIGN(std::string key, read_name(reader, what, "a metadata key"));
        TRY_ASSIGN(GgufValue value, read_value(reader, what, key));
        if (const auto [place, is_new] = out.metadata.try_emplace(std::move(key), std::move(value)); !is_new)
            return corrupt_data(fmt::format("{}: metadata '{}' occurs twice", what, printable(place->first)));
    }
    std::vector<TensorInfo> infos;
    std::unordered_set<std::string> names;
    for (size_t i = 0; i < n_tensors; ++i) {
        TRY_ASSIGN(TensorInfo info, read_tensor_info(reader, what));
        if (!names.insert(info.tensor.name).second)
            return corrupt_data(fmt::format("{}: tensor '{}' occurs twice", what, printable(info.tensor.name)));
        infos.push_back(std::move(info));
    }
    TRY_ASSIGN(const uint64_t alignment, alignment_of(out.metadata, what));
    const uint64_t data_begin = std::min<uint64_t>((reader.position() + alignment - 1) / alignment * alignment, file.size());
    TRY(place_data(infos, file.subspan(data_begin), alignment, what));
    for (auto& info : infos) out.tensors.push_back(std::move(info.tensor));
    return out;
}

}  // namespace espalier::checkpoint
