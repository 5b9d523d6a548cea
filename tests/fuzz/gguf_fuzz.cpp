// fuzz-links: espalier_checkpoint
// GGUF files: whatever the bytes are, one line of error, or tensors inside the file that do not overlap, metadata that can be
// read, and blocks that can be expanded.
#include <cstdlib>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_blocks.h"
#include "checkpoint/gguf_config.h"
#include "checkpoint/gguf_names.h"

namespace {

using namespace espalier;
using namespace espalier::checkpoint;

void check_one_line(const Error& error) {
    if (error.message.find('\n') != std::string::npos) std::abort();
}

void check_values(const GgufMetadata& metadata) {
    for (const auto& [key, value] : metadata) {
        if (value.describe().find('\n') != std::string::npos) std::abort();
        for (const size_t i : {size_t{0}, value.size() - 1, value.size()}) {
            const bool is_there = value.integer(i) || value.number(i) || value.boolean(i) || value.text(i);
            if (is_there && i >= value.size()) std::abort();
        }
    }
}

void check_tensor(const GgufTensor& tensor, std::span<const std::byte> file) {
    if (tensor.data.data() < file.data() || tensor.data.data() + tensor.data.size() > file.data() + file.size()) std::abort();
    int64_t n = 1;
    for (const int64_t extent : tensor.shape) n *= extent;
    if (n / tensor.type->block_values * tensor.type->block_bytes != static_cast<int64_t>(tensor.data.size())) std::abort();
    if (!can_expand(*tensor.type)) return;
    std::vector<float> values(static_cast<size_t>(n));
    expand_gguf_blocks(*tensor.type, tensor.data, values);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto file = std::as_bytes(std::span(data, size));
    const auto parsed = parse_gguf(file, "fuzz");
    if (!parsed) {
        check_one_line(parsed.error());
        return 0;
    }
    check_values(parsed->metadata);
    for (const GgufTensor& tensor : parsed->tensors) {
        check_tensor(tensor, file);
        if (const auto name = normalise_gguf_name(tensor.name, 4); name && name->name.empty()) std::abort();
    }
    if (const auto config = config_of_gguf(parsed->metadata, 64, "fuzz"); !config) check_one_line(config.error());
    return 0;
}
