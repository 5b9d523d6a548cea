#include "checkpoint/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <tuple>

#include "checkpoint/names.h"

namespace espalier::checkpoint {
namespace {

// Calibrated scales lie within 1e-6 to 1e2 in files of this family; outside of that a unit or a type was mistaken.
constexpr float kScaleLow = 1e-8f;
constexpr float kScaleHigh = 1e3f;

// "layers.12.mlp.up_proj" gives "layers.*.mlp.up_proj".
std::string group_name(std::string_view name) {
    std::string out;
    for (size_t begin = 0; begin <= name.size();) {
        const size_t end = std::min(name.find('.', begin), name.size());
        const auto part = name.substr(begin, end - begin);
        const bool is_number =
            !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
        if (begin > 0) out += '.';
        out += is_number ? "*" : std::string(part);
        begin = end + 1;
    }
    return out;
}

void widen(float& low, float& high, float value) {
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
}

void add_scales(const WeightView& view, const std::string& name, ModuleGroup& group, std::vector<std::string>& problems) {
    const auto odd = [&](std::string_view what, float value) {
        if (value == 0 || (value >= kScaleLow && value <= kScaleHigh)) return;
        problems.push_back(fmt::format("{}: {} of {} is far from what calibration gives", printable(name), what, value));
    };
    for (const auto& row : view.row_scales) {
        if (view.scales.empty()) {
            widen(group.weight_scale_min, group.weight_scale_max, row.weight_scale);
            odd("a weight scale", row.weight_scale);
        }
        if (row.input_scale == 0) continue;
        widen(group.input_scale_min, group.input_scale_max, row.input_scale);
        odd("an input scale", row.input_scale);
    }
    for (const float scale : view.scales) widen(group.weight_scale_min, group.weight_scale_max, scale);
    group.n_blocks += static_cast<int64_t>(view.block_scales_e4m3.size());
    group.n_blocks_saturated += std::count(view.block_scales_e4m3.begin(), view.block_scales_e4m3.end(), uint8_t{0x7e});
    group.n_blocks_zero += std::count(view.block_scales_e4m3.begin(), view.block_scales_e4m3.end(), uint8_t{0});
}

bool has_scales(WeightLayout layout) {
    return layout != WeightLayout::f32 && layout != WeightLayout::bf16 && layout != WeightLayout::f16;
}

void add_modules(Checkpoint& checkpoint, CheckpointSummary& summary) {
    std::map<std::tuple<std::string, WeightLayout, ActivationScheme, int64_t, int64_t>, ModuleGroup> groups;
    for (const auto& module : checkpoint.modules()) {
        const auto name = group_name(module.name);
        auto& group = groups[{name, module.layout, module.activations, module.n, module.k}];
        group.name = name;
        group.layout = module.layout;
        group.activations = module.activations;
        group.n = module.n;
        group.k = module.k;
        ++group.n_modules;
        group.bytes += module.bytes;
        summary.bytes_linear += module.bytes;
        summary.n_parameters += module.n * module.k;
        group.is_copied = group.is_copied || module.is_copied;
        if (!has_scales(module.layout)) continue;
        const auto view = checkpoint.linear(module.name, module.n, module.k);
        if (!view) summary.problems.push_back(view.error().message);
        else add_scales(*view, module.name, group, summary.problems);
        if (view) checkpoint.release(*view);
    }
    for (auto& [key, group] : groups) summary.groups.push_back(std::move(group));
}

void add_kv_scales(Checkpoint& checkpoint, CheckpointSummary& summary) {
    for (const auto& module : checkpoint.modules()) {
        constexpr std::string_view kSuffix = ".k_proj";
        if (!std::string_view(module.name).ends_with(kSuffix)) continue;
        const auto attention = module.name.substr(0, module.name.size() - kSuffix.size());
        const auto scales = checkpoint.kv_scales(attention);
        if (!scales) {
            summary.problems.push_back(scales.error().message);
            continue;
        }
        if (scales->k == 1 && scales->v == 1) continue;  // none stored: the default
        widen(summary.k_scale_min, summary.k_scale_max, scales->k);
        widen(summary.v_scale_min, summary.v_scale_max, scales->v);
    }
}

std::string bytes_text(int64_t bytes) {
    if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
    if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
    return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
}

std::string range_text(float low, float high) {
    if (high == 0) return "-";
    return low == high ? fmt::format("{:.3g}", low) : fmt::format("{:.3g}..{:.3g}", low, high);
}

Json range_json(float low, float high) {
    return high == 0 ? Json() : Json{{"min", low}, {"max", high}};
}

}  // namespace

CheckpointSummary summarize(Checkpoint& checkpoint) {
    CheckpointSummary summary;
    summary.path = checkpoint.path();
    const auto& raw = checkpoint.raw_config();
    if (const auto found = raw.find("architectures");
        found != raw.end() && found->is_array() && !found->empty() && (*found)[0].is_string()) {
        summary.architecture = printable((*found)[0].get_ref<const std::string&>());
    }
    if (const auto found = raw.find("model_type"); found != raw.end() && found->is_string()) {
        summary.model_type = printable(found->get_ref<const std::string&>());
    }
    summary.declares_fp8_kv = checkpoint.declares_fp8_kv();
    summary.has_mtp = checkpoint.has_linear("mtp.fc");
    summary.has_lm_head = checkpoint.has_linear("lm_head");
    for (const auto& tensor : checkpoint.tensors()) {
        ++summary.n_tensors;
        summary.bytes += tensor.bytes;
        if (is_visual(tensor.name)) summary.bytes_visual += tensor.bytes;
        else if (tensor.shape.size() != 2 && tensor.dtype_name != "U8" && !tensor.name.ends_with("_scale") &&
                 !tensor.name.ends_with("_scale_2")) {
            int64_t n = 1;
            for (const int64_t extent : tensor.shape) n *= extent;
            summary.n_parameters += n;
        }
    }
    add_modules(checkpoint, summary);
    add_kv_scales(checkpoint, summary);
    summary.notes = checkpoint.notes();
    return summary;
}

std::string summary_text(const CheckpointSummary& s) {
    std::string out = fmt::format("{}\n{} ({}), {:.3f} B parameters, {} tensors, {}\n", s.path,
                                  s.architecture.empty() ? "?" : s.architecture, s.model_type.empty() ? "?" : s.model_type,
                                  static_cast<double>(s.n_parameters) / 1e9, s.n_tensors, bytes_text(s.bytes));
    out += fmt::format("LM head: {}; MTP head: {}; KV scheme: {}", s.has_lm_head ? "own" : "tied to the embedding",
                       s.has_mtp ? "yes" : "no", s.declares_fp8_kv ? "FP8" : "none declared");
    if (s.k_scale_max > 0)
        out += fmt::format(" (K scale {}, V scale {})", range_text(s.k_scale_min, s.k_scale_max),
                           range_text(s.v_scale_min, s.v_scale_max));
    out += fmt::format("\n\n{:<38} {:>5} {:>15} {:<11} {:<17} {:>10}  {:<18} {}\n", "module", "count", "n x k", "weights",
                       "inputs", "bytes", "weight scale", "input scale");
    for (const auto& g : s.groups) {
        out += fmt::format("{:<38} {:>5} {:>15} {:<11} {:<17} {:>10}  {:<18} {}\n", printable(g.name), g.n_modules,
                           fmt::format("{} x {}", g.n, g.k), to_string(g.layout), to_string(g.activations), bytes_text(g.bytes),
                           range_text(g.weight_scale_min, g.weight_scale_max), range_text(g.input_scale_min, g.input_scale_max));
        if (g.n_blocks_zero > 0) out += fmt::format("    {} of {} blocks are zero\n", g.n_blocks_zero, g.n_blocks);
    }
    for (const auto& note : s.notes) out += fmt::format("note: {}\n", note);
    for (const auto& problem : s.problems) out += fmt::format("problem: {}\n", problem);
    return out;
}

Json summary_json(const CheckpointSummary& s) {
    Json groups = Json::array();
    for (const auto& g : s.groups) {
        groups.push_back({{"name", printable(g.name)},
                          {"layout", to_string(g.layout)},
                          {"activations", to_string(g.activations)},
                          {"n", g.n},
                          {"k", g.k},
                          {"count", g.n_modules},
                          {"bytes", g.bytes},
                          {"weight_scale", range_json(g.weight_scale_min, g.weight_scale_max)},
                          {"input_scale", range_json(g.input_scale_min, g.input_scale_max)},
                          {"blocks", g.n_blocks},
                          {"blocks_saturated", g.n_blocks_saturated},
                          {"blocks_zero", g.n_blocks_zero}});
    }
    return {{"path", s.path},
            {"architecture", s.architecture},
            {"model_type", s.model_type},
            {"tensors", s.n_tensors},
            {"parameters", s.n_parameters},
            {"bytes", s.bytes},
            {"bytes_linear", s.bytes_linear},
            {"bytes_visual", s.bytes_visual},
            {"mtp", s.has_mtp},
            {"lm_head", s.has_lm_head},
            {"fp8_kv", s.declares_fp8_kv},
            {"k_scale", range_json(s.k_scale_min, s.k_scale_max)},
            {"v_scale", range_json(s.v_scale_min, s.v_scale_max)},
            {"modules", groups},
            {"notes", s.notes},
            {"problems", s.problems}};
}

}  // namespace espalier::checkpoint
