// Checkpoint over a Hugging Face folder: config, safetensors files, quantisation metadata.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <unordered_set>

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_checkpoint.h"
#include "checkpoint/gguf_files.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/modules.h"
#include "checkpoint/names.h"
#include "checkpoint/quant_declaration.h"
#include "checkpoint/tensor_files.h"
#include "checkpoint/values.h"

namespace espalier::checkpoint {
namespace {

constexpr size_t kMetadataBytesMax = 16 << 20;

std::string_view last_part(std::string_view name) {
    const size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// Scales of quantised keys, values and queries, whether or not the cache uses them.
bool is_kv_scale(std::string_view name) {
    const auto leaf = last_part(name);
    return leaf == "k_scale" || leaf == "v_scale" || leaf == "q_scale" || leaf == "kv_scale" ||
           name.ends_with("k_proj.output_scale") || name.ends_with("v_proj.output_scale");
}

// Whether a stored shape is what was asked for; a convolution's [c, 1, 4] is {c, 4}.
bool same_shape(std::span<const int64_t> stored, std::span<const int64_t> asked) {
    if (std::equal(stored.begin(), stored.end(), asked.begin(), asked.end())) return true;
    return stored.size() == 3 && asked.size() == 2 && stored[1] == 1 && stored[0] == asked[0] && stored[2] == asked[1];
}

class HfCheckpoint final : public Checkpoint {
public:
    HfCheckpoint(std::string path, HfConfig config, TensorFiles files, QuantDeclaration declaration)
        : path_(std::move(path)), config_(std::move(config)), files_(std::move(files)), declaration_(std::move(declaration)) {}

    // Modules point into files_, so they are found once it has its final place.
    Status bind() {
        TRY_ASSIGN(modules_, find_modules(files_, declaration_, declaration_.notes));
        return {};
    }

    const Json& text_config() const override { return config_.text; }
    const Json& raw_config() const override { return config_.raw; }
    const GenerationDefaults& generation_defaults() const override { return config_.generation; }
    const std::string& path() const override { return path_; }

    Result<WeightView> linear(std::string_view module, int64_t n, int64_t k) override;
    bool has_linear(std::string_view module) const override { return modules_.find(module) != modules_.end(); }
    Result<std::vector<float>> floats(std::string_view name, std::span<const int64_t> shape) override;
    bool has_tensor(std::string_view name) const override { return files_.tensors.find(name) != files_.tensors.end(); }
    Result<KvScales> kv_scales(std::string_view attention_module) override;
    bool declares_fp8_kv() const override { return declaration_.has_fp8_kv; }
    Status check_all_used() const override;
    std::vector<TensorInfo> tensors() const override;
    std::vector<ModuleInfo> modules() const override;
    std::vector<std::string> notes() const override;
    void release(const WeightView& weight) const override;

private:
    Result<std::optional<float>> kv_scale(std::string_view attention_module, char which);
    std::string where() const { return fmt::format("{} ({} tensors)", path_, files_.tensors.size()); }

    std::string path_;
    HfConfig config_;
    TensorFiles files_;
    QuantDeclaration declaration_;
    Modules modules_;
    std::vector<std::vector<std::byte>> copies_;
    std::unordered_set<const StoredTensor*> used_;
};

Result<WeightView> HfCheckpoint::linear(std::string_view module, int64_t n, int64_t k) {
    const auto found = modules_.find(module);
    if (found == modules_.end()) {
        return invalid_input(fmt::format(
            "{}: '{}.weight' is missing, expected a matrix of {} x {}; config.json and weights do not belong together?", where(),
            printable(module), n, k));
    }
    const auto& t = found->second.tensors;
    for (const auto* tensor : {t.weight, t.weight_scale, t.weight_scale_2, t.weight_scale_inv, t.weight_global_scale})
        used_.insert(tensor);
    if (found->second.activations != ActivationScheme::none) {
        used_.insert(t.input_scale);
        used_.insert(t.input_global_scale);
    }
    return view_module(found->second, n, k, copies_);
}

Result<std::vector<float>> HfCheckpoint::floats(std::string_view name, std::span<const int64_t> shape) {
    const auto found = files_.tensors.find(name);
    if (found == files_.tensors.end()) {
        return invalid_input(
            fmt::format("{}: '{}' is missing, expected shape {}; config.json and weights do not belong together?", where(),
                        printable(name), shape_text(shape)));
    }
    const auto& tensor = found->second;
    if (!same_shape(tensor.shape, shape)) {
        return invalid_input(fmt::format("{}: '{}' has shape {}, config.json asks for {}", path_, printable(tensor.file_name),
                                         shape_text(tensor.shape), shape_text(shape)));
    }
    if (tensor.dtype != Dtype::f32 && tensor.dtype != Dtype::bf16 && tensor.dtype != Dtype::f16) {
        return invalid_input(fmt::format("{}: '{}' has type {}, expected F32, BF16 or F16", path_, printable(tensor.file_name),
                                         printable(tensor.dtype_name)));
    }
    used_.insert(&tensor);
    return read_floats(*tensor.dtype, tensor.data);
}

// The scale of K or V under any of the names that exporters use; they must agree when several are there.
Result<std::optional<float>> HfCheckpoint::kv_scale(std::string_view attention_module, char which) {
    const std::array<std::string, 6> names = {
        fmt::format("{}.{}_proj.{}_scale", attention_module, which, which),
        fmt::format("{}.{}_scale", attention_module, which),
        fmt::format("{}.attn.{}_scale", attention_module, which),
        fmt::format("{}.qkv_proj.{}_scale", attention_module, which),
        fmt::format("{}.{}_proj.output_scale", attention_module, which),
        fmt::format("{}.kv_scale", attention_module),
    };
    std::optional<float> scale;
    const StoredTensor* first = nullptr;
    for (const auto& name : names) {
        const auto found = files_.tensors.find(name);
        if (found == files_.tensors.end()) continue;
        TRY_ASSIGN(const float value, scalar_scale(found->second, ZeroScale::refused));
        if (scale && *scale != value) {
            return corrupt_data(fmt::format("{}: '{}' is {} but '{}' is {}; expected one value", path_,
                                            printable(first->file_name), *scale, printable(found->second.file_name), value));
        }
        scale = value;
        first = &found->second;
    }
    return scale;
}

Result<KvScales> HfCheckpoint::kv_scales(std::string_view attention_module) {
    TRY_ASSIGN(const auto k, kv_scale(attention_module, 'k'));
    TRY_ASSIGN(const auto v, kv_scale(attention_module, 'v'));
    return KvScales{k.value_or(1.0f), v.value_or(1.0f), k.has_value() || v.has_value() || declaration_.has_fp8_kv};
}

Status HfCheckpoint::check_all_used() const {
    std::vector<std::string> extra;
    for (const auto& [name, tensor] : files_.tensors) {
        if (used_.contains(&tensor) || is_visual(name) || is_kv_scale(name) || is_spare_mtp(name)) continue;
        extra.push_back(
            fmt::format("'{}' {} {}", printable(tensor.file_name), printable(tensor.dtype_name), shape_text(tensor.shape)));
    }
    if (extra.empty()) return {};
    return invalid_input(
        fmt::format("{}: {} tensors that config.json has no place for: {}; the config is of another model, or the model of a "
                    "kind that this program does not know",
                    path_, extra.size(), first_few(extra)));
}

std::vector<TensorInfo> HfCheckpoint::tensors() const {
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : files_.tensors) {
        infos.push_back({name, tensor.file_name, tensor.dtype_name, tensor.shape, static_cast<int64_t>(tensor.data.size())});
    }
    return infos;
}

std::vector<ModuleInfo> HfCheckpoint::modules() const {
    std::vector<ModuleInfo> infos;
    for (const auto& [name, module] : modules_) {
        int64_t bytes = 0;
        const auto& t = module.tensors;
        for (const auto* tensor : {t.weight, t.weight_scale, t.weight_scale_2, t.weight_scale_inv, t.weight_global_scale,
                                   t.input_scale, t.input_global_scale}) {
            if (tensor != nullptr) bytes += static_cast<int64_t>(tensor->data.size());
        }
        infos.push_back({name, module.layout, module.activations, module.n, module.k, bytes, false});
    }
    return infos;
}

std::vector<std::string> HfCheckpoint::notes() const {
    size_t n_visual = 0;
    size_t n_spare = 0;
    for (const auto& [name, tensor] : files_.tensors) {
        n_visual += is_visual(name);
        n_spare += is_spare_mtp(name);
    }
    std::vector<std::string> lines;
    if (n_visual > 0) lines.push_back(fmt::format("{} visual tensors skipped (text only)", n_visual));
    if (n_spare > 0)
        lines.push_back(fmt::format("{} tensors of an MTP-only head or embedding skipped (the trunk's are used)", n_spare));
    lines.insert(lines.end(), declaration_.notes.begin(), declaration_.notes.end());
    return lines;
}

void HfCheckpoint::release(const WeightView& weight) const {
    release_within(files_.shards, weight.data);
    release_within(files_.shards, std::as_bytes(weight.block_scales_e4m3));
}

Result<std::optional<Json>> read_hf_quant_config(const std::filesystem::path& folder) {
    const auto path = folder / "hf_quant_config.json";
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return std::optional<Json>();
    TRY_ASSIGN(const auto text, read_file(path.string(), kMetadataBytesMax));
    TRY_ASSIGN(auto json, parse_json(text, path.string(), 32));
    return std::optional<Json>(std::move(json));
}

Result<QuantDeclaration> read_declaration(const std::string& folder, const Json& config) {
    TRY_ASSIGN(const auto hf_quant_config, read_hf_quant_config(folder));
    auto declaration = parse_quant_declaration(config, hf_quant_config ? &*hf_quant_config : nullptr);
    if (!declaration) return Error{declaration.error().code, fmt::format("{}: {}", folder, declaration.error().message)};
    return declaration;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) return invalid_input(fmt::format("{}: no such folder or file", path));
    if (is_gguf(path)) return open_gguf_checkpoint(path);
    if (!std::filesystem::is_directory(status)) {
        return invalid_input(
            fmt::format("{}: not a folder and not a GGUF file; expected a Hugging Face checkpoint folder with config.json and "
                        "safetensors, or a "
                        ".gguf file",
                        path));
    }
    TRY_ASSIGN(auto config, read_hf_config(path));
    TRY_ASSIGN(auto declaration, read_declaration(path, config.raw));
    TRY_ASSIGN(auto files, open_tensor_files(path));
    auto checkpoint = std::make_unique<HfCheckpoint>(path, std::move(config), std::move(files), std::move(declaration));
    if (auto bound = checkpoint->bind(); !bound)
        return Error{bound.error().code, fmt::format("{}: {}", path, bound.error().message)};
    return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace espalier::checkpoint
