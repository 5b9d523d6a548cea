// What a checkpoint's metadata says about its quantisation: config.json's quantization_config and hf_quant_config.json.
//
// The tensors decide a module's format; metadata is only compared with them, because it is unreliable: exclude lists may be empty
// while modules are BF16, patterns may not match, and layers may be declared that the file does not have. So every statement
// is kept as a claim with its scope, and only a contradiction that cannot be either of these is an error.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/names.h"
#include "tensor/layout.h"

namespace espalier::checkpoint {

enum class ClaimedWeights : uint8_t { nvfp4, fp8 };
enum class ClaimedInputs : uint8_t { unsaid, unquantised, fixed_scale, per_token, per_block };

// "These modules are quantised like this."
struct QuantClaim {
    ClaimedWeights weights = ClaimedWeights::nvfp4;
    ClaimedInputs inputs = ClaimedInputs::unsaid;
    // A class ("Linear") or a global algorithm covers every module, but says only how quantised modules are quantised.
    bool is_by_name = false;
    bool is_exact = false;             // by names given one by one: these modules must be quantised
    bool has_unread_pattern = false;   // covers more modules than `modules` says
    std::vector<NamePattern> modules;  // when is_by_name
    std::string source;                // "config.json: quantization_config.quant_algo is NVFP4"
};

// "These modules are not quantised."
struct QuantExclusion {
    NamePattern modules;
    bool is_exact = false;  // one module by its whole name, rather than a pattern that a default list may have brought along
    std::string source;
};

struct QuantDeclaration {
    std::vector<QuantClaim> claims;
    std::vector<QuantExclusion> exclusions;
    bool has_fp8_kv = false;
    std::vector<std::string> notes;
};

// Reads both files' statements; `hf_quant_config` may be null. Errors: unsupported for methods that this program cannot run (AWQ,
// GPTQ, bitsandbytes, int8, ...), by name and with what to use instead; invalid_input for fields of the wrong type; corrupt_data
// when the two files contradict each other.
Result<QuantDeclaration> parse_quant_declaration(const Json& config, const Json* hf_quant_config);

// How one linear module's tensors say that it is stored, without sizes.
struct FoundFormat {
    std::string_view file_name;   // module name as in the file
    std::string_view normalised;  // and normalised
    WeightLayout layout = WeightLayout::bf16;
    bool has_input_scale = false;
};

struct DeclarationCheck {
    ClaimedInputs inputs = ClaimedInputs::unsaid;
    // A pattern that excludes this module although it is quantised, empty when there is none. The tensors decide.
    std::string overruled;
};

// Compares a module with the claims. Errors: corrupt_data naming both sides. Otherwise what the claims say about its inputs.
Result<DeclarationCheck> check_declaration(const QuantDeclaration& declaration, const FoundFormat& found);

// The advice at the end of every refusal of a quantisation method.
std::string_view unsupported_quant_advice();

}  // namespace espalier::checkpoint
