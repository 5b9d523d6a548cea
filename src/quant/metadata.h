// The files beside the weights: config.json with its quantization_config, hf_quant_config.json, and copies of the text side.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "quant/recipe.h"

namespace espalier::quant {

// config.json of the quantised model. `config`: the source's, as written.
Json quantised_config(const Json& config, const Plan& plan, const std::string& version);
// hf_quant_config.json, which ModelOpt's layouts have; null for block FP8.
Json hf_quant_config(const Plan& plan, const std::string& version);

// Copies tokenizer, templates and other small known files, then writes the two above, config.json last: a folder that has it is
// complete.
Status write_metadata(const std::string& source, const std::string& destination, const Json& config, const Plan& plan,
                      const std::string& version);

}  // namespace espalier::quant
