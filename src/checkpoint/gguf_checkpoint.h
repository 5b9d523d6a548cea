// Checkpoint over a GGUF file: the same names, shapes and values that the Hugging Face folder of the model would give.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"

namespace espalier::checkpoint {

// Errors: those of the reader and of the metadata, and tensors of types that are not supported, by name.
Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path);

}  // namespace espalier::checkpoint
