// Linear modules: which tensors belong to one, which layout they form, and the checked weight view.
//
// The layout is decided from the tensors present (a U8 weight with weight_scale_2 is ModelOpt's NVFP4, an E4M3 weight with a
// matrix of scales is block FP8, ...). Names and shapes: ModelOpt's and compressed-tensors' exporters, and Qwen's FP8 releases.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/quant_declaration.h"
#include "checkpoint/tensor_files.h"
#include "tensor/layout.h"

namespace espalier::checkpoint {

// A module's tensors by suffix, null when absent. Borrowed from TensorFiles.
struct ModuleTensors {
    const StoredTensor* weight = nullptr;               // codes or values
    bool is_packed_name = false;                        // the weight is called weight_packed (compressed-tensors)
    const StoredTensor* weight_scale = nullptr;         // NVFP4 block scales; FP8 per tensor, channel or block
    const StoredTensor* weight_scale_2 = nullptr;       // NVFP4 second level, multiplies
    const StoredTensor* weight_scale_inv = nullptr;     // block FP8, multiplies despite its name
    const StoredTensor* weight_global_scale = nullptr;  // NVFP4 second level, divides
    const StoredTensor* input_scale = nullptr;          // multiplies
    const StoredTensor* input_global_scale = nullptr;   // divides
};

struct Module {
    std::string name;       // normalised, "layers.0.mlp.up_proj"
    std::string file_name;  // as in the file, without suffix
    ModuleTensors tensors;
    WeightLayout layout = WeightLayout::bf16;
    ActivationScheme activations = ActivationScheme::none;
    int64_t n = 0;  // as stored
    int64_t k = 0;
};

using Modules = std::map<std::string, Module, std::less<>>;

// Finds every linear module of the files (visual ones and spare MTP heads apart), decides its layout and compares it with the
// metadata. Patterns of the metadata that the tensors overrule are added to `notes`, each once. Errors: a missing scale, tensors
// of formats that this program refuses (by name), a contradiction with the metadata.
Result<Modules> find_modules(const TensorFiles& files, const QuantDeclaration& declaration, std::vector<std::string>& notes);

// The weight of a module with every scale checked. `n`, `k`: what the model expects. Data that the file holds at an odd address
// for its type is copied into `copies`.
Result<WeightView> view_module(const Module& module, int64_t n, int64_t k, std::vector<std::vector<std::byte>>& copies);

// The one number of a scalar scale tensor (shape [] or [1] or all ones). Errors: wrong type or shape, NaN, infinite, negative, or
// zero when `zero` says that it is refused.
enum class ZeroScale : uint8_t { allowed, refused };
Result<float> scalar_scale(const StoredTensor& tensor, ZeroScale zero);

}  // namespace espalier::checkpoint
