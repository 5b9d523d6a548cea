// Writes safetensors files and Hugging Face folders, streaming: a 27B checkpoint never needs its size in memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/layout.h"

namespace espalier::checkpoint {

struct TensorToWrite {
    std::string name;
    Dtype dtype = Dtype::f32;
    std::vector<int64_t> shape;
    // Called once, in file order; appends the tensor's bytes through `sink` in pieces. Errors end the write.
    std::function<Status(const std::function<Status(std::span<const std::byte>)>& sink)> produce;
};

// Writes one safetensors file (header, then data in the given order) through a temporary name and rename.
Status write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace espalier::checkpoint
