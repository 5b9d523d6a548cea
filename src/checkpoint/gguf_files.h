// A GGUF model as one table of tensors: a single file, or all files of a split one (name-00001-of-00003.gguf, ...).
#pragma once

#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "checkpoint/gguf.h"

namespace espalier::checkpoint {

struct GgufFiles {
    std::vector<MappedFile> shards;
    GgufMetadata metadata;            // of the first file
    std::vector<GgufTensor> tensors;  // of all files
};

// Whether the path is a file that begins as GGUF does, or whose name says so.
bool is_gguf(const std::string& path);

// The files that belong together, by name: all parts of a split model, whichever is given, else the path itself.
std::vector<std::string> gguf_paths(const std::string& path);

// The only GGUF model of a folder without config.json (vision projectors, "mmproj*", apart); any other path as it is. Errors:
// several models, by name.
Result<std::string> gguf_in_folder(const std::string& path);

// Maps and parses them. Errors: those of parse_gguf, a missing part, parts of different models or in the wrong place, two tensors
// of one name, a part named in a way that does not tell the others.
Result<GgufFiles> open_gguf_files(const std::string& path);

}  // namespace espalier::checkpoint
