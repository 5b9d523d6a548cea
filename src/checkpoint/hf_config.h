// config.json and generation_config.json of a Hugging Face folder.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace espalier::checkpoint {

struct HfConfig {
    Json raw;   // config.json as written
    Json text;  // the text model's fields at the top level, whichever layout the file has
    GenerationDefaults generation;
};

// From the files' texts; an empty generation_text means that there is no generation_config.json. Errors: not JSON, not an object,
// a field of the wrong type. Stop ids are those of generation_config.json, then those of config.json that it lacks.
Result<HfConfig> parse_hf_config(std::string_view config_text, std::string_view generation_text, const std::string& folder);

// The same from a folder. config.json must exist, generation_config.json may be absent.
Result<HfConfig> read_hf_config(const std::string& folder);

}  // namespace espalier::checkpoint
