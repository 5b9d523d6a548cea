// fuzz-links: espalier_checkpoint
// Safetensors headers: whatever the bytes are, either an error or entries that stay inside the file.
#include <cstdlib>

#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::as_bytes(std::span(data, size));
    const auto entries = espalier::checkpoint::parse_safetensors(file, "fuzz");
    if (!entries) {
        if (entries.error().message.find('\n') != std::string::npos) std::abort();
        return 0;
    }
    size_t covered = 0;
    for (const auto& entry : *entries) {
        if (entry.begin > entry.end || entry.end > size || entry.begin < covered) std::abort();
        covered = entry.end;
    }
    return 0;
}
