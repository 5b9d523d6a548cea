// What to quantise, and how: the choices of the command line, and the plan that follows from a checkpoint's modules.
//
// The defaults are those of NVIDIA's ModelOpt: every projection of the decoder layers is quantised; embedding, head, MTP layer,
// convolutions, the small recurrent gates (in_proj_a, in_proj_b), norms and mtp.fc stay as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_files.h"
#include "model/observer.h"

namespace espalier::quant {

enum class Recipe : uint8_t {
    nvfp4,        // W4A4: 16-blocks, input scales from calibration
    nvfp4_w4a16,  // weights only
    fp8,          // one scale per weight, one for its inputs from calibration
    fp8_block,    // one scale per 128x128 block, inputs scaled per row when run
};

// "nvfp4", "nvfp4-w4a16", "fp8", "fp8-block".
std::string_view to_string(Recipe recipe);
// The reverse. Errors: invalid_input, naming the recipes there are.
Result<Recipe> parse_recipe(std::string_view name);

bool is_nvfp4(Recipe recipe);
// Whether quantised modules get an input scale from calibration.
bool has_input_scales(Recipe recipe);

struct Choices {
    Recipe recipe = Recipe::nvfp4;
    bool has_head = false;  // quantise the LM head (of a tied model: a quantised copy beside the embedding)
    bool has_mtp = false;   // quantise the MTP layer
    bool has_fp8_kv = true;
};

// Modules with one key read the same activations. NVFP4 modules of one key share their second-level scale, so that they can run
// as one product.
std::string activation_key(std::string_view layer, model::ActivationSite site);
inline constexpr std::string_view kHeadKey = "lm_head";

struct PlannedModule {
    std::string name;       // normalised
    std::string file_name;  // without suffix, as in the files
    std::string source;     // normalised name of the weight that is read: `name`, or the embedding of a tied head
    std::string key;
    int64_t n = 0;
    int64_t k = 0;
};

struct PlannedKv {
    std::string layer;      // "layers.3"
    std::string file_name;  // of the attention module, "model.layers.3.self_attn"
};

struct Plan {
    Choices choices;
    std::vector<PlannedModule> modules;
    std::vector<PlannedKv> kv;          // empty without FP8 keys and values
    std::vector<std::string> excluded;  // for the metadata: names and patterns, sorted
    std::vector<std::string> plain;     // linear modules that stay as they are, by name in the files, sorted
    bool unties_head = false;

    bool needs_calibration() const { return !kv.empty() || has_input_scales(choices.recipe); }
};

// Errors: invalid_input when a module to quantise is quantised already or its K does not fit the format; when the head or the MTP
// layer is asked for and not there.
Result<Plan> make_plan(const checkpoint::Checkpoint& source, const checkpoint::TensorFiles& files, const Choices& choices);

}  // namespace espalier::quant
