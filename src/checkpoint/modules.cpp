#include "checkpoint/modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "checkpoint/names.h"
#include "checkpoint/values.h"

namespace espalier::checkpoint {
namespace {

constexpr int64_t kNvfp4Block = 16;
constexpr int64_t kFp8Block = 128;

int64_t blocks(int64_t extent, int64_t block) {
    return (extent + block - 1) / block;
}

bool is_scalar(const StoredTensor& tensor) {
    return std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t extent) { return extent == 1; });
}

bool is_float(const StoredTensor& tensor) {
    return tensor.dtype == Dtype::f32 || tensor.dtype == Dtype::bf16 || tensor.dtype == Dtype::f16;
}

std::string describe(const StoredTensor& tensor) {
    return fmt::format("'{}' is {} {}", printable(tensor.file_name), tensor.dtype_name, shape_text(tensor.shape));
}

Error refuse_tensor(const StoredTensor& tensor, std::string_view what) {
    return unsupported(fmt::format("{}: {} is not supported; {}", describe(tensor), what, unsupported_quant_advice()));
}

Error missing_scale(const Module& module, std::string_view suffix, std::string_view why) {
    return corrupt_data(fmt::format("'{}.{}' is missing: {}, which needs it; fetch the checkpoint again",
                                    printable(module.file_name), suffix, why));
}

// Tensors that only other quantisation methods write.
Status refuse_foreign(const StoredTensor& tensor, std::string_view suffix, const TensorFiles& files, std::string_view module) {
    if (suffix == "qweight") {
        const bool has_g_idx = files.tensors.find(fmt::format("{}.g_idx", module)) != files.tensors.end();
        return refuse_tensor(tensor, has_g_idx ? "GPTQ quantisation" : "AWQ (or GPTQ) quantisation");
    }
    if (suffix == "SCB" || tensor.name.find(".weight.absmax") != std::string::npos ||
        tensor.name.find(".weight.quant_") != std::string::npos) {
        return refuse_tensor(tensor, "bitsandbytes quantisation");
    }
    if (suffix == "pre_quant_scale") return refuse_tensor(tensor, "AWQ-smoothed quantisation (pre_quant_scale)");
    if (suffix == "weight_zero_point" || suffix == "input_zero_point")
        return refuse_tensor(tensor, "asymmetric integer quantisation");
    if (suffix == "weight_shape") return refuse_tensor(tensor, "int4 pack-quantized quantisation");
    return {};
}

// The member that a suffix fills, null for other suffixes.
const StoredTensor* ModuleTensors::*slot_of(std::string_view suffix) {
    if (suffix == "weight" || suffix == "weight_packed") return &ModuleTensors::weight;
    if (suffix == "weight_scale") return &ModuleTensors::weight_scale;
    if (suffix == "weight_scale_2") return &ModuleTensors::weight_scale_2;
    if (suffix == "weight_scale_inv") return &ModuleTensors::weight_scale_inv;
    if (suffix == "weight_global_scale") return &ModuleTensors::weight_global_scale;
    if (suffix == "input_scale") return &ModuleTensors::input_scale;
    if (suffix == "input_global_scale") return &ModuleTensors::input_global_scale;
    return nullptr;
}

Status decide_nvfp4(Module& module) {
    const auto& t = module.tensors;
    const auto why = describe(*t.weight) + ", packed 4-bit codes";
    if (t.weight_scale == nullptr) return missing_scale(module, "weight_scale", why);
    if (t.is_packed_name) {
        if (t.weight_global_scale == nullptr) return missing_scale(module, "weight_global_scale", why);
    } else if (t.weight_scale_2 == nullptr) {
        return missing_scale(module, "weight_scale_2", why);
    }
    if (t.weight_scale->dtype_name == "U8" || t.weight_scale->dtype_name == "F8_E8M0") {
        return refuse_tensor(*t.weight_scale, "MXFP4 quantisation");
    }
    module.layout = WeightLayout::nvfp4;
    if (__builtin_mul_overflow(t.weight->shape[1], int64_t{2}, &module.k)) {
        return corrupt_data(fmt::format("{}: that many codes do not exist", describe(*t.weight)));
    }
    return {};
}

Status decide_fp8(Module& module) {
    const auto& t = module.tensors;
    const StoredTensor* scale = t.weight_scale_inv != nullptr ? t.weight_scale_inv : t.weight_scale;
    if (scale == nullptr) return missing_scale(module, "weight_scale", describe(*t.weight));
    if (scale->dtype_name == "U8" || scale->dtype_name == "F8_E8M0") return refuse_tensor(*scale, "MXFP8 quantisation");
    const auto& shape = scale->shape;
    const bool is_matrix = shape.size() == 2;
    if (is_scalar(*scale)) {
        module.layout = WeightLayout::fp8_tensor;
    } else if ((shape.size() == 1 && shape[0] == module.n) || (is_matrix && shape[0] == module.n && shape[1] == 1)) {
        module.layout = WeightLayout::fp8_channel;
    } else if (is_matrix && shape[0] == blocks(module.n, kFp8Block) && shape[1] == blocks(module.k, kFp8Block)) {
        module.layout = WeightLayout::fp8_block;
    } else {
        return corrupt_data(fmt::format("{}, but {}; expected one scale, [{}] (per row) or [{}, {}] (128x128 blocks)",
                                        describe(*scale), describe(*t.weight), module.n, blocks(module.n, kFp8Block),
                                        blocks(module.k, kFp8Block)));
    }
    return {};
}

Status decide_layout(Module& module) {
    const auto& t = module.tensors;
    if (t.weight == nullptr)
        return corrupt_data(fmt::format("'{}.weight' is missing, though its scales are there", printable(module.file_name)));
    if (t.weight->dtype == Dtype::i32) return refuse_tensor(*t.weight, "int4 pack-quantized quantisation");
    if (t.weight->dtype == Dtype::i8) return refuse_tensor(*t.weight, "int8 quantisation (W8A8 and others)");
    if (t.weight->shape.size() != 2) return corrupt_data(fmt::format("{}, expected a matrix", describe(*t.weight)));
    module.n = t.weight->shape[0];
    module.k = t.weight->shape[1];
    if (t.weight->dtype == Dtype::u8) return decide_nvfp4(module);
    if (t.weight->dtype == Dtype::f8_e4m3) return decide_fp8(module);
    if (t.weight->dtype == Dtype::f32) module.layout = WeightLayout::f32;
    else if (t.weight->dtype == Dtype::f16) module.layout = WeightLayout::f16;
    else if (t.weight->dtype == Dtype::bf16) module.layout = WeightLayout::bf16;
    else return corrupt_data(fmt::format("{}, expected BF16, F16, F32, F8_E4M3 or U8", describe(*t.weight)));
    for (const StoredTensor* extra : {t.weight_scale, t.weight_scale_2, t.weight_scale_inv, t.weight_global_scale}) {
        if (extra == nullptr) continue;
        return corrupt_data(fmt::format("{} and {}: a {} weight has no scale; one of them is wrong", describe(*t.weight),
                                        describe(*extra), t.weight->dtype_name));
    }
    return {};
}

ActivationScheme scheme_of(const Module& module, ClaimedInputs claimed) {
    const auto& t = module.tensors;
    const bool has_input_scale = t.input_scale != nullptr || t.input_global_scale != nullptr;
    switch (module.layout) {
        case WeightLayout::nvfp4: return has_input_scale ? ActivationScheme::nvfp4_static : ActivationScheme::none;
        case WeightLayout::fp8_tensor:
        case WeightLayout::fp8_channel:
        case WeightLayout::fp8_block: break;
        default: return ActivationScheme::none;
    }
    if (has_input_scale) return ActivationScheme::fp8_static;
    if (claimed == ClaimedInputs::per_token) return ActivationScheme::fp8_dynamic_token;
    if (claimed == ClaimedInputs::per_block) return ActivationScheme::fp8_dynamic_block;
    // Qwen's own spelling implies its own scheme when the config says nothing.
    const bool is_qwen_block = module.layout == WeightLayout::fp8_block && t.weight_scale_inv != nullptr;
    return is_qwen_block && claimed == ClaimedInputs::unsaid ? ActivationScheme::fp8_dynamic_block : ActivationScheme::none;
}

Status expect_shape(const StoredTensor& tensor, std::initializer_list<int64_t> expected) {
    if (std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end())) return {};
    return corrupt_data(fmt::format("{}, expected {}", describe(tensor), shape_text(std::vector<int64_t>(expected))));
}

Status check_block_scales(const StoredTensor& tensor) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(tensor.data.data());
    const auto* end = bytes + tensor.data.size();
    const auto* bad = std::find_if(bytes, end, [](uint8_t byte) { return byte >= 0x7f; });
    if (bad == end) return {};
    return corrupt_data(
        fmt::format("{}: scale {} is {} (byte 0x{:02x}), expected a number >= 0; the file is damaged, fetch it again",
                    describe(tensor), bad - bytes, (*bad & 0x7f) == 0x7f ? "NaN" : "negative", *bad));
}

Status check_float_scales(const StoredTensor& tensor, std::span<const float> scales) {
    for (size_t i = 0; i < scales.size(); ++i) {
        if (std::isfinite(scales[i]) && scales[i] >= 0) continue;
        return corrupt_data(fmt::format("{}: scale {} is {}, expected a finite number >= 0; the file is damaged, fetch it again",
                                        describe(tensor), i, scales[i]));
    }
    return {};
}

// The activation scale of a module, 0 when none is stored.
Result<float> input_scale_of(const ModuleTensors& t) {
    if (t.input_scale != nullptr) return scalar_scale(*t.input_scale, ZeroScale::refused);
    if (t.input_global_scale == nullptr) return 0.0f;
    TRY_ASSIGN(const float divisor, scalar_scale(*t.input_global_scale, ZeroScale::refused));
    return multiplier_from_divisor(divisor);
}

Status view_nvfp4(const Module& module, WeightView& view) {
    const auto& t = module.tensors;
    if (view.k % kNvfp4Block != 0) {
        return corrupt_data(fmt::format("'{}': K = {} is not a multiple of the NVFP4 block of {}", printable(module.file_name),
                                        view.k, kNvfp4Block));
    }
    if (t.weight_scale->dtype != Dtype::f8_e4m3)
        return corrupt_data(fmt::format("{}, expected F8_E4M3", describe(*t.weight_scale)));
    TRY(expect_shape(*t.weight_scale, {view.n, view.k / kNvfp4Block}));
    TRY(check_block_scales(*t.weight_scale));
    RowScale row{0, view.n, 1.0f, 0.0f};
    if (t.is_packed_name) {
        TRY_ASSIGN(const float divisor, scalar_scale(*t.weight_global_scale, ZeroScale::refused));
        row.weight_scale = multiplier_from_divisor(divisor);
    } else {
        TRY_ASSIGN(row.weight_scale, scalar_scale(*t.weight_scale_2, ZeroScale::allowed));
    }
    TRY_ASSIGN(row.input_scale, input_scale_of(t));
    view.block_scales_e4m3 = {reinterpret_cast<const uint8_t*>(t.weight_scale->data.data()), t.weight_scale->data.size()};
    view.row_scales.push_back(row);
    return {};
}

Status view_fp8(const Module& module, WeightView& view) {
    const auto& t = module.tensors;
    const StoredTensor& scale = t.weight_scale_inv != nullptr ? *t.weight_scale_inv : *t.weight_scale;
    RowScale row{0, view.n, 1.0f, 0.0f};
    TRY_ASSIGN(row.input_scale, input_scale_of(t));
    if (view.layout == WeightLayout::fp8_tensor) {
        TRY_ASSIGN(row.weight_scale, scalar_scale(scale, ZeroScale::allowed));
        view.row_scales.push_back(row);
        return {};
    }
    if (!is_float(scale)) return corrupt_data(fmt::format("{}, expected F32, BF16 or F16", describe(scale)));
    view.scales = read_floats(*scale.dtype, scale.data);
    TRY(check_float_scales(scale, view.scales));
    if (row.input_scale != 0) view.row_scales.push_back(row);
    return {};
}

// The bytes of a weight at an address that its type may be read from.
std::span<const std::byte> aligned(const StoredTensor& tensor, std::vector<std::vector<std::byte>>& copies) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.data.data());
    if (address % dtype_bytes(*tensor.dtype) == 0) return tensor.data;
    copies.emplace_back(tensor.data.begin(), tensor.data.end());
    return copies.back();
}

}  // namespace

Result<float> scalar_scale(const StoredTensor& tensor, ZeroScale zero) {
    if (!is_float(tensor) || !is_scalar(tensor)) return corrupt_data(fmt::format("{}, expected one float", describe(tensor)));
    const float value = read_floats(*tensor.dtype, tensor.data)[0];
    if (!std::isfinite(value) || value < 0 || (value == 0 && zero == ZeroScale::refused)) {
        return corrupt_data(fmt::format("'{}' is {}, expected a finite number {} 0; the file is damaged, fetch it again",
                                        printable(tensor.file_name), value, zero == ZeroScale::refused ? ">" : ">="));
    }
    return value;
}

Result<Modules> find_modules(const TensorFiles& files, const QuantDeclaration& declaration, std::vector<std::string>& notes) {
    Modules modules;
    for (const auto& [name, tensor] : files.tensors) {
        const size_t dot = name.rfind('.');
        if (dot == std::string::npos || is_visual(name) || is_spare_mtp(name)) continue;
        const auto suffix = std::string_view(name).substr(dot + 1);
        const auto module_name = std::string_view(name).substr(0, dot);
        TRY(refuse_foreign(tensor, suffix, files, module_name));
        // Norms have a weight too, but a vector; the convolution's has three dimensions.
        if (suffix == "weight" && tensor.shape.size() != 2) continue;
        const auto slot = slot_of(suffix);
        if (slot == nullptr) continue;
        Module& module = modules[std::string(module_name)];
        const StoredTensor*& place = module.tensors.*slot;
        if (place != nullptr) {
            return corrupt_data(fmt::format("'{}' and '{}' are both there; expected one", printable(place->file_name),
                                            printable(tensor.file_name)));
        }
        place = &tensor;
        module.name = module_name;
        module.file_name = tensor.file_name.substr(0, tensor.file_name.size() - suffix.size() - 1);
        module.tensors.is_packed_name |= suffix == "weight_packed";
    }
    std::set<std::string> overruled;
    for (auto& [name, module] : modules) {
        TRY(decide_layout(module));
        const auto& t = module.tensors;
        const FoundFormat found{module.file_name, module.name, module.layout,
                                t.input_scale != nullptr || t.input_global_scale != nullptr};
        TRY_ASSIGN(const auto check, check_declaration(declaration, found));
        module.activations = scheme_of(module, check.inputs);
        // One note per pattern, about its first module.
        if (!check.overruled.empty() && overruled.insert(check.overruled.substr(0, check.overruled.find(", but "))).second) {
            notes.push_back(check.overruled);
        }
    }
    return modules;
}

Result<WeightView> view_module(const Module& module, int64_t n, int64_t k, std::vector<std::vector<std::byte>>& copies) {
    if (module.n != n || module.k != k) {
        return invalid_input(fmt::format("{}, that is {} x {}; config.json asks for {} x {}", describe(*module.tensors.weight),
                                         module.n, module.k, n, k));
    }
    WeightView view;
    view.layout = module.layout;
    view.activations = module.activations;
    view.n = n;
    view.k = k;
    view.data = aligned(*module.tensors.weight, copies);
    if (view.layout == WeightLayout::nvfp4) TRY(view_nvfp4(module, view));
    else if (view.layout == WeightLayout::fp8_tensor || view.layout == WeightLayout::fp8_channel ||
             view.layout == WeightLayout::fp8_block)
        TRY(view_fp8(module, view));
    return view;
}

}  // namespace espalier::checkpoint
