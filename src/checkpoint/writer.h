// Writes safetensors files and Hugging Face folders, streaming: a 27B checkpoint never needs its size in memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/layout.h"

namespace espalier::checkpoint {

using ByteSink = std::function<Status(std::span<const std::byte>)>;

struct TensorToWrite {
    std::string name;
    Dtype dtype = Dtype::f32;
    std::vector<int64_t> shape;
    // Called once, in file order; appends the tensor's bytes through `sink` in pieces. Errors end the write.
    std::function<Status(const ByteSink& sink)> produce;
};

// A tensor whose bytes are already there (copied).
TensorToWrite tensor_from_bytes(std::string name, Dtype dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes);

// Whether a file is complete on the disk, or only in the system's cache, before it gets its name. The disk is several times
// slower.
enum class Flush : uint8_t { to_disk, to_cache };

// What to do with a file that is there already. keep: if its header and size are those that would be written, it is taken for
// written (files appear complete or not at all), so that an interrupted write of many shards can go on.
enum class Existing : uint8_t { replace, keep };

// Writes one safetensors file (header, then data in the given order) through a temporary name and rename. The data start on a
// multiple of 64 bytes; order the tensors by falling element size and each is aligned for its type. Errors: invalid_input when
// the disk refuses or a name occurs twice; internal when a tensor produces another number of bytes than its shape says.
Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors, Flush flush = Flush::to_disk);

// Writes the weights of a Hugging Face folder: model.safetensors, or shards of at most about `shard_bytes_max` with their index
// when they do not fit into one. Tensors keep their order.
Status write_weights(const std::string& folder, const std::vector<TensorToWrite>& tensors, int64_t shard_bytes_max,
                     Flush flush = Flush::to_disk, Existing existing = Existing::replace);

}  // namespace espalier::checkpoint
