// The metadata of a GGUF file with architecture "qwen35" as the config that a Hugging Face checkpoint of the model would have.
#pragma once

#include "checkpoint/gguf.h"
#include "checkpoint/hf_config.h"

namespace espalier::checkpoint {

// `vocab`: rows of the embedding, which the metadata does not state. Errors: an architecture or feature that is not supported, a
// key that is missing, of the wrong kind or out of range, each by name.
Result<HfConfig> config_of_gguf(const GgufMetadata& metadata, int64_t vocab, std::string_view what);

}  // namespace espalier::checkpoint
