// The safetensors container: an 8-byte little-endian header length, a JSON header, then the tensors' bytes.
//
// The header of an untrusted file is checked completely before any offset is used: its length against the file, every
// shape times type against its byte range, and the ranges against each other (no overlap, no gap, nothing left over), which is
// what the format's own reader demands. Source: https://github.com/huggingface/safetensors, README, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/layout.h"

namespace espalier::checkpoint {

inline constexpr size_t kSafetensorsHeaderBytesMax = 100'000'000;  // the reference reader's limit
inline constexpr size_t kSafetensorsTensorsMax = 1'000'000;
inline constexpr size_t kSafetensorsRankMax = 16;

struct SafetensorsEntry {
    std::string name;
    std::string dtype_name;      // as in the file; may be one that no Dtype exists for
    std::vector<int64_t> shape;  // every extent >= 0
    size_t begin = 0;            // byte range in the file, header included
    size_t end = 0;
};

// Reads and checks the header of a whole file in memory. Entries come in file order. `what` names the file in errors, which have
// the code corrupt_data.
Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file, std::string_view what);

// The type that a safetensors name means, if this program has it.
std::optional<Dtype> dtype_from_name(std::string_view name);

}  // namespace espalier::checkpoint
