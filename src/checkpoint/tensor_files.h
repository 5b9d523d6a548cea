// The safetensors files of a Hugging Face folder as one table of tensors: a single file, or shards and their index.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace espalier::checkpoint {

// One tensor in its stored type.
struct StoredTensor {
    std::string name;        // normalised
    std::string file_name;   // as in the file
    std::string dtype_name;  // as in the file
    std::optional<Dtype> dtype;
    std::vector<int64_t> shape;
    std::span<const std::byte> data;  // borrowed from the mapped file; any alignment
    int shard = 0;
};

struct TensorFiles {
    std::vector<MappedFile> shards;
    std::map<std::string, StoredTensor, std::less<>> tensors;  // by normalised name
};

// Maps the folder's weights: model.safetensors.index.json and its shards, or model.safetensors, or the only *.safetensors file.
// Errors: a missing or damaged file, an index that disagrees with its shards or leaves the folder, two tensors of one name.
Result<TensorFiles> open_tensor_files(const std::string& folder);

// The shard file named in an index, checked: a plain file name in the same folder. Exposed for tests.
Status check_shard_name(std::string_view name, std::string_view index_path);

}  // namespace espalier::checkpoint
