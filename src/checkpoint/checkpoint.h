// A model on disk, whatever its file format, as named weights in logical order plus metadata.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/layout.h"

namespace espalier::checkpoint {

// One tensor as the file lists it, for reports.
struct TensorInfo {
    std::string name;        // normalised
    std::string file_name;   // as in the file
    std::string dtype_name;  // as in the file, "BF16"
    std::vector<int64_t> shape;
    int64_t bytes = 0;  // as the model reads it: expanded where no kernel reads the stored type
};

// One linear module as its tensors describe it, for reports.
struct ModuleInfo {
    std::string name;  // normalised
    WeightLayout layout = WeightLayout::f32;
    ActivationScheme activations = ActivationScheme::none;
    int64_t n = 0;
    int64_t k = 0;
    int64_t bytes = 0;       // weight and scales, as the model reads them
    bool is_copied = false;  // its weight is no view of the file: expanded or reordered in memory
};

struct KvScales {
    float k = 1.0f;
    float v = 1.0f;
    bool is_declared = false;
};

struct GenerationDefaults {
    std::vector<int32_t> eos_ids;
    std::optional<double> temperature;
    std::optional<double> top_p;
    std::optional<int64_t> top_k;
};

// Names are normalised: "model." and "language_model." prefixes are gone ("layers.0.mlp.up_proj", "embed_tokens", "norm",
// "lm_head", "mtp.fc"). The checkpoint owns the mapped files; every view lives as long as it does.
class Checkpoint {
public:
    // Opens a Hugging Face folder or a GGUF file (of a split one: any part). Errors name the file, the tensor, what was found and
    // what was expected.
    static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);
    virtual ~Checkpoint() = default;

    // The text model's config (text_config lifted to the top when nested) and the whole file as written.
    virtual const Json& text_config() const = 0;
    virtual const Json& raw_config() const = 0;
    virtual const GenerationDefaults& generation_defaults() const = 0;
    virtual const std::string& path() const = 0;

    // A linear module by normalised name without ".weight" ("layers.0.mlp.up_proj"). Its layout is decided from the tensors
    // present. Errors: invalid_input when missing, mis-shaped or wrong-typed: by name, with expected and found.
    virtual Result<WeightView> linear(std::string_view module, int64_t n, int64_t k) = 0;
    virtual bool has_linear(std::string_view module) const = 0;

    // A float tensor by normalised name with its suffix ("layers.0.input_layernorm.weight", "layers.0.linear_attn.A_log"),
    // converted to float. shape must match exactly (a stored [c, 1, 4] matches {c, 4}).
    virtual Result<std::vector<float>> floats(std::string_view name, std::span<const int64_t> shape) = 0;
    virtual bool has_tensor(std::string_view name) const = 0;

    // FP8 KV scales of an attention layer ("layers.3.self_attn"), and whether the checkpoint declares an FP8 KV scheme.
    virtual Result<KvScales> kv_scales(std::string_view attention_module) = 0;
    virtual bool declares_fp8_kv() const = 0;

    // Tensors that nothing asked for (call after binding): an error by name, except visual ones, which are skipped.
    virtual Status check_all_used() const = 0;
    virtual std::vector<TensorInfo> tensors() const = 0;
    virtual std::vector<ModuleInfo> modules() const = 0;
    // Lines worth telling the user ("333 visual tensors skipped").
    virtual std::vector<std::string> notes() const = 0;
    // Lets the kernel drop the pages of a weight that was packed elsewhere.
    virtual void release(const WeightView& weight) const = 0;
};

}  // namespace espalier::checkpoint
