// One stored entry from disk into the pools, every byte checked before anybody sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "cache/disk_format.h"
#include "cache/sequence.h"

namespace espalier::cache {

struct DiskReadRequest {
    std::string directory;
    uint64_t conversation = 0;
    uint64_t entry = 0;
    const DiskIdentity* identity = nullptr;
    DiskKey key;
    std::span<const TokenId> tokens;  // that the entry must have
    int32_t context_tokens = 0;
};

// The pools must have a free state slot and a free page for every 64 tokens. On an error every slot is free again and holds no
// unchecked byte. damaged_record: the record of the pages file that was wrong, if that was it. Errors: invalid_input (a file
// cannot be opened), corrupt_data, unsupported.
Result<Sequence> read_entry(Memory& memory, const DiskReadRequest& request, std::optional<uint32_t>& damaged_record);

// Reads all of it as read_entry does and keeps nothing: whether room for it is worth making.
Status check_entry(const StateShape& shape, const DiskReadRequest& request, std::optional<uint32_t>& damaged_record);

}  // namespace espalier::cache
