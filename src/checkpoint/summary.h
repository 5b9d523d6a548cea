// What a checkpoint holds, for `espalier inspect`: formats per kind of module, sizes, and scales that look wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace espalier::checkpoint {

// Linear modules that differ only in their layer number and are stored alike.
struct ModuleGroup {
    std::string name;  // "layers.*.mlp.up_proj"
    WeightLayout layout = WeightLayout::f32;
    ActivationScheme activations = ActivationScheme::none;
    int64_t n = 0;
    int64_t k = 0;
    int64_t n_modules = 0;
    int64_t bytes = 0;       // weights and scales
    bool is_copied = false;  // no views of the file: expanded or reordered in memory
    // Second-level scales (nvfp4, fp8_tensor), per row or block scales (other FP8) over all modules; 0 when the layout has none.
    float weight_scale_min = 0;
    float weight_scale_max = 0;
    float input_scale_min = 0;
    float input_scale_max = 0;
    // NVFP4 blocks, how many have the largest scale (448: the block's maximum may be clipped) and the scale 0.
    int64_t n_blocks = 0;
    int64_t n_blocks_saturated = 0;
    int64_t n_blocks_zero = 0;
};

struct CheckpointSummary {
    std::string path;
    std::string architecture;
    std::string model_type;
    int64_t n_tensors = 0;
    int64_t n_parameters = 0;  // of linear modules and float tensors, visual ones apart
    int64_t bytes = 0;         // all tensors
    int64_t bytes_linear = 0;  // linear modules with their scales, the embedding included
    int64_t bytes_visual = 0;  // skipped
    bool has_mtp = false;
    bool has_lm_head = false;  // otherwise tied to the embedding
    bool declares_fp8_kv = false;
    float k_scale_min = 0;  // over the attention layers, 0 when no scales are stored
    float k_scale_max = 0;
    float v_scale_min = 0;
    float v_scale_max = 0;
    std::vector<ModuleGroup> groups;    // in the order of the names
    std::vector<std::string> notes;     // normal, worth knowing
    std::vector<std::string> problems;  // modules that cannot be loaded, scales that look wrong
};

// Reads every module's scales (not its weights). Never fails: what cannot be loaded becomes a problem line.
CheckpointSummary summarize(Checkpoint& checkpoint);

std::string summary_text(const CheckpointSummary& summary);
Json summary_json(const CheckpointSummary& summary);

}  // namespace espalier::checkpoint
