#include "quant/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "checkpoint/names.h"

namespace espalier::quant {
namespace {

using model::ActivationSite;

constexpr std::array<std::string_view, 4> kRecipeNames = {"nvfp4", "nvfp4-w4a16", "fp8", "fp8-block"};
constexpr std::array<std::string_view, 7> kSiteNames = {"mixer_in", "mixer_out", "mlp_in", "mlp_out", "fc", "keys", "values"};
constexpr int64_t kNvfp4Block = 16;

struct Projection {
    std::string_view suffix;
    ActivationSite site;
};

constexpr Projection kProjections[] = {
    {".self_attn.q_proj", ActivationSite::mixer_in},
    {".self_attn.k_proj", ActivationSite::mixer_in},
    {".self_attn.v_proj", ActivationSite::mixer_in},
    {".self_attn.o_proj", ActivationSite::mixer_out},
    {".linear_attn.in_proj_qkv", ActivationSite::mixer_in},
    {".linear_attn.in_proj_z", ActivationSite::mixer_in},
    {".linear_attn.out_proj", ActivationSite::mixer_out},
    {".mlp.gate_proj", ActivationSite::mlp_in},
    {".mlp.up_proj", ActivationSite::mlp_in},
    {".mlp.down_proj", ActivationSite::mlp_out},
};

// The activations that a projection of a decoder layer reads, empty for other modules.
std::optional<std::string> projection_key(std::string_view module) {
    for (const Projection& projection : kProjections) {
        if (!module.ends_with(projection.suffix)) continue;
        return activation_key(module.substr(0, module.size() - projection.suffix.size()), projection.site);
    }
    return std::nullopt;
}

bool is_float(WeightLayout layout) {
    return layout == WeightLayout::f32 || layout == WeightLayout::bf16 || layout == WeightLayout::f16;
}

class Planner {
public:
    Planner(const checkpoint::Checkpoint& source, const checkpoint::TensorFiles& files, const Choices& choices)
        : source_(source), files_(files) {
        plan_.choices = choices;
    }

    Result<Plan> run() {
        for (const checkpoint::ModuleInfo& module : source_.modules()) TRY(add(module));
        TRY(add_head());
        if (plan_.choices.has_mtp && !has_mtp_) {
            return invalid_input(fmt::format("{} has no MTP layer to quantise; leave --mtp away", source_.path()));
        }
        if (plan_.modules.empty()) return invalid_input(fmt::format("{}: no projections to quantise", source_.path()));
        if (has_mtp_) excluded_.insert(plan_.choices.has_mtp ? "mtp.fc*" : "mtp*");
        add_excluded_tensors();
        plan_.excluded.assign(excluded_.begin(), excluded_.end());
        std::sort(plan_.plain.begin(), plan_.plain.end());
        return std::move(plan_);
    }

private:
    std::string file_name(const std::string& module) const {
        const auto& name = files_.tensors.at(module + ".weight").file_name;
        return name.substr(0, name.size() - std::string_view(".weight").size());
    }

    Status add(const checkpoint::ModuleInfo& module) {
        if (!is_float(module.layout)) {
            return invalid_input(fmt::format("{}: '{}' is {} already; quantise the BF16 original", source_.path(),
                                             checkpoint::printable(module.name), to_string(module.layout)));
        }
        if (module.name == "embed_tokens") embedding_ = module;
        if (module.name == "lm_head") head_ = module;
        if (module.name == "embed_tokens" || module.name == "lm_head") return {};
        const bool is_mtp = module.name.starts_with("mtp.");
        has_mtp_ |= is_mtp;
        const auto key = projection_key(module.name);
        if (!key || (is_mtp && !plan_.choices.has_mtp)) {
            plan_.plain.push_back(file_name(module.name));
            if (!is_mtp) excluded_.insert(file_name(module.name));
            return {};
        }
        if (module.name.ends_with(".self_attn.k_proj") && !is_mtp && plan_.choices.has_fp8_kv) {
            const auto cut = [](std::string name, std::string_view suffix) {
                return name.substr(0, name.size() - suffix.size());
            };
            plan_.kv.push_back({cut(module.name, ".self_attn.k_proj"), cut(file_name(module.name), ".k_proj")});
        }
        return quantise({module.name, file_name(module.name), module.name, *key, module.n, module.k});
    }

    Status quantise(PlannedModule module) {
        if (is_nvfp4(plan_.choices.recipe) && module.k % kNvfp4Block != 0) {
            return invalid_input(fmt::format("'{}' has K = {}, which NVFP4's blocks of {} do not divide; use --recipe fp8",
                                             checkpoint::printable(module.name), module.k, kNvfp4Block));
        }
        plan_.modules.push_back(std::move(module));
        return {};
    }

    Status add_head() {
        if (!plan_.choices.has_head) {
            excluded_.insert("lm_head");
            if (head_) plan_.plain.push_back(file_name("lm_head"));
            return {};
        }
        const auto& source = head_ ? head_ : embedding_;
        if (!source) return invalid_input(fmt::format("{} has neither LM head nor embedding", source_.path()));
        plan_.unties_head = !head_;
        return quantise(
            {"lm_head", head_ ? file_name("lm_head") : "lm_head", source->name, std::string(kHeadKey), source->n, source->k});
    }

    // ModelOpt also lists the embedding, the convolutions and, as one pattern, the vision tower.
    void add_excluded_tensors() {
        if (embedding_) excluded_.insert(file_name("embed_tokens"));
        for (const auto& [name, tensor] : files_.tensors) {
            if (name.ends_with(".conv1d.weight") && !checkpoint::is_visual(name)) {
                excluded_.insert(tensor.file_name.substr(0, tensor.file_name.size() - std::string_view(".weight").size()));
            }
            if (checkpoint::is_visual(name)) {
                const size_t prefix = tensor.file_name.size() - name.size();
                excluded_.insert(tensor.file_name.substr(0, prefix) + name.substr(0, name.find('.')) + "*");
            }
        }
    }

    const checkpoint::Checkpoint& source_;
    const checkpoint::TensorFiles& files_;
    Plan plan_;
    std::set<std::string> excluded_;
    std::optional<checkpoint::ModuleInfo> embedding_;
    std::optional<checkpoint::ModuleInfo> head_;
    bool has_mtp_ = false;
};

}  // namespace

std::string_view to_string(Recipe recipe) {
    return kRecipeNames[static_cast<size_t>(recipe)];
}

Result<Recipe> parse_recipe(std::string_view name) {
    for (size_t i = 0; i < kRecipeNames.size(); ++i) {
        if (kRecipeNames[i] == name) return static_cast<Recipe>(i);
    }
    return invalid_input(fmt::format("recipe '{}' is not known; use {}", name, fmt::join(kRecipeNames, ", ")));
}

bool is_nvfp4(Recipe recipe) {
    return recipe == Recipe::nvfp4 || recipe == Recipe::nvfp4_w4a16;
}

bool has_input_scales(Recipe recipe) {
    return recipe == Recipe::nvfp4 || recipe == Recipe::fp8;
}

std::string activation_key(std::string_view layer, ActivationSite site) {
    return fmt::format("{}.{}", layer, kSiteNames[static_cast<size_t>(site)]);
}

Result<Plan> make_plan(const checkpoint::Checkpoint& source, const checkpoint::TensorFiles& files, const Choices& choices) {
    return Planner(source, files, choices).run();
}

}  // namespace espalier::quant
