#include "checkpoint/quant_declaration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace espalier::checkpoint {
namespace {

struct ForeignMethod {
    std::string_view name;
    std::string_view title;
};

// quant_method values of other tools.
constexpr ForeignMethod kForeignMethods[] = {
    {"awq", "AWQ"},
    {"gptq", "GPTQ"},
    {"bitsandbytes", "bitsandbytes"},
    {"hqq", "HQQ"},
    {"aqlm", "AQLM"},
    {"quanto", "Quanto"},
    {"eetq", "EETQ int8"},
    {"torchao", "torchao"},
    {"mxfp4", "MXFP4"},
    {"auto-round", "AutoRound"},
    {"quark", "Quark"},
    {"fbgemm_fp8", "FBGEMM FP8"},
    {"exl2", "EXL2"},
    {"exl3", "EXL3"},
    {"w8a8_int8", "int8 W8A8"},
    {"spqr", "SpQR"},
    {"vptq", "VPTQ"},
    {"higgs", "HIGGS"},
};

struct AlgoMeaning {
    std::string_view algo;
    ClaimedWeights weights;
    ClaimedInputs inputs;
};

// ModelOpt's quant_algo values that this program runs (MIXED_PRECISION apart).
constexpr AlgoMeaning kAlgoMeanings[] = {
    {"NVFP4", ClaimedWeights::nvfp4, ClaimedInputs::fixed_scale},
    {"W4A16_NVFP4", ClaimedWeights::nvfp4, ClaimedInputs::unquantised},
    {"FP8", ClaimedWeights::fp8, ClaimedInputs::fixed_scale},
    {"FP8_PER_CHANNEL_PER_TOKEN", ClaimedWeights::fp8, ClaimedInputs::per_token},
};

Error refuse(std::string_view what, std::string_view source) {
    return unsupported(fmt::format("{}: {} is not supported; {}", source, what, unsupported_quant_advice()));
}

std::string brief(const Json& value) {
    return printable(dump_json(value));
}

// A member that is absent or null counts as missing.
const Json* member(const Json& object, std::string_view key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::string> text_member(const Json& object, std::string_view key, std::string_view where) {
    const Json* value = member(object, key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return invalid_input(fmt::format("{}.{} is {}, expected text", where, key, brief(*value)));
    return value->get<std::string>();
}

// A list of texts; absent counts as empty.
Result<std::vector<std::string>> text_list(const Json& object, std::string_view key, std::string_view where) {
    std::vector<std::string> texts;
    const Json* list = member(object, key);
    if (list == nullptr) return texts;
    if (!list->is_array()) return invalid_input(fmt::format("{}.{} is {}, expected a list of names", where, key, brief(*list)));
    for (const auto& item : *list) {
        if (!item.is_string()) return invalid_input(fmt::format("{}.{} holds {}, expected names", where, key, brief(item)));
        texts.push_back(item.get<std::string>());
    }
    return texts;
}

Status check_group_size(const Json& object, int64_t expected, std::string_view where) {
    const Json* value = member(object, "group_size");
    if (value == nullptr || (value->is_number_integer() && *value == expected)) return {};
    return refuse(fmt::format("group_size {} (only {} is)", brief(*value), expected), where);
}

Result<QuantClaim> claim_of_algo(const std::string& algo, const std::string& where) {
    for (const auto& meaning : kAlgoMeanings) {
        if (meaning.algo != algo) continue;
        QuantClaim claim;
        claim.weights = meaning.weights;
        claim.inputs = meaning.inputs;
        claim.source = fmt::format("{} is {}", where, algo);
        return claim;
    }
    return refuse(fmt::format("quantisation algorithm {}", printable(algo)), where);
}

// quantized_layers: {module: {quant_algo, group_size?}} of MIXED_PRECISION files.
Status add_quantized_layers(const Json& layers, const std::string& where, QuantDeclaration& out) {
    if (!layers.is_object()) return invalid_input(fmt::format("{} is {}, expected an object", where, brief(layers)));
    for (const auto& [module, value] : layers.items()) {
        const auto at = fmt::format("{}['{}']", where, printable(module));
        TRY_ASSIGN(const auto algo, text_member(value, "quant_algo", at));
        if (algo.empty()) continue;
        TRY_ASSIGN(auto claim, claim_of_algo(algo, at));
        if (claim.weights == ClaimedWeights::nvfp4) TRY(check_group_size(value, 16, at));
        claim.is_by_name = true;
        claim.is_exact = module.find_first_of("*?[") == std::string::npos;
        claim.modules.push_back(NamePattern::glob(module));
        out.claims.push_back(std::move(claim));
    }
    return {};
}

// quant_algo and its companions, which stand in config.json's quantization_config and in hf_quant_config.json alike.
Status add_modelopt(const Json& quantization, const std::string& where, std::string_view exclude_key, QuantDeclaration& out) {
    TRY_ASSIGN(const auto algo, text_member(quantization, "quant_algo", where));
    if (!algo.empty() && algo != "MIXED_PRECISION") {
        TRY_ASSIGN(auto claim, claim_of_algo(algo, where + ".quant_algo"));
        if (claim.weights == ClaimedWeights::nvfp4) TRY(check_group_size(quantization, 16, where));
        out.claims.push_back(std::move(claim));
    }
    if (const Json* layers = member(quantization, "quantized_layers")) {
        TRY(add_quantized_layers(*layers, where + ".quantized_layers", out));
    }
    TRY_ASSIGN(const auto excluded, text_list(quantization, exclude_key, where));
    for (const auto& text : excluded) {
        out.exclusions.push_back({NamePattern::glob(text), text.find_first_of("*?[") == std::string::npos,
                                  fmt::format("{}.{} lists '{}'", where, exclude_key, printable(text))});
    }
    return {};
}

Result<ClaimedInputs> inputs_of_group(const Json& group, ClaimedWeights weights, const std::string& where,
                                      QuantDeclaration& out) {
    const Json* inputs = member(group, "input_activations");
    if (inputs == nullptr) return ClaimedInputs::unquantised;
    const auto at = where + ".input_activations";
    const Json* bits = member(*inputs, "num_bits");
    TRY_ASSIGN(const auto type, text_member(*inputs, "type", at));
    const int expected_bits = weights == ClaimedWeights::nvfp4 ? 4 : 8;
    if ((bits != nullptr && *bits != expected_bits) || (!type.empty() && type != "float")) {
        return refuse(
            fmt::format("input activations of {} bits, type '{}'", bits == nullptr ? "?" : brief(*bits), printable(type)), at);
    }
    const Json* dynamic = member(*inputs, "dynamic");
    const bool is_dynamic = dynamic != nullptr && dynamic->is_boolean() && dynamic->get<bool>();
    if (weights == ClaimedWeights::nvfp4) {
        if (is_dynamic) return refuse("NVFP4 activations without a fixed second-level scale", at);
        return ClaimedInputs::fixed_scale;
    }
    if (!is_dynamic) return ClaimedInputs::fixed_scale;
    TRY_ASSIGN(const auto strategy, text_member(*inputs, "strategy", at));
    if (strategy == "group") {
        TRY(check_group_size(*inputs, 128, at));
        return ClaimedInputs::per_block;
    }
    if (strategy == "tensor") {
        out.notes.push_back(
            at + ": one dynamic scale per tensor is taken per token, so that a row never depends on the rows beside it");
    }
    return ClaimedInputs::per_token;
}

// One of compressed-tensors' config_groups (ModelOpt writes the same structure).
Status add_config_group(const Json& group, const std::string& where, QuantDeclaration& out) {
    const Json* weights = member(group, "weights");
    if (weights == nullptr) return {};
    const Json* bits = member(*weights, "num_bits");
    TRY_ASSIGN(const auto type, text_member(*weights, "type", where + ".weights"));
    const std::string bits_text = bits == nullptr ? "?" : brief(*bits);
    QuantClaim claim;
    claim.source = fmt::format("{} says {} bit weights of type {}", where, bits_text, printable(type));
    if (bits_text == "4" && type == "float") {
        claim.weights = ClaimedWeights::nvfp4;
        TRY(check_group_size(*weights, 16, where + ".weights"));
    } else if (bits_text == "8" && type == "float") {
        claim.weights = ClaimedWeights::fp8;
    } else if (type == "int") {
        return refuse(fmt::format("int{} weight quantisation", bits_text), where);
    } else {
        return refuse(fmt::format("{} bit weights of type '{}'", bits_text, printable(type)), where);
    }
    TRY_ASSIGN(claim.inputs, inputs_of_group(group, claim.weights, where, out));
    TRY_ASSIGN(const auto targets, text_list(group, "targets", where));
    claim.is_exact = true;
    for (const auto& target : targets) {
        // A class name says nothing about one module.
        if (target.find('.') == std::string::npos && !target.starts_with("re:") && target != "lm_head") continue;
        claim.is_by_name = true;
        claim.is_exact &= !target.starts_with("re:");
        if (const auto pattern = NamePattern::compressed_tensors(target)) claim.modules.push_back(*pattern);
        else claim.has_unread_pattern = true;
    }
    out.claims.push_back(std::move(claim));
    return {};
}

Status add_config_groups(const Json& config, const std::string& where, QuantDeclaration& out) {
    const Json* groups = member(config, "config_groups");
    if (groups == nullptr) return {};
    if (!groups->is_object())
        return invalid_input(fmt::format("{}.config_groups is {}, expected an object", where, brief(*groups)));
    for (const auto& [name, group] : groups->items()) {
        TRY(add_config_group(group, fmt::format("{}.config_groups.{}", where, printable(name)), out));
    }
    return {};
}

void add_kv_scheme(const Json& config, const std::string& where, QuantDeclaration& out) {
    const Json* scheme = member(config, "kv_cache_scheme");
    if (scheme == nullptr) return;
    const Json* bits = member(*scheme, "num_bits");
    const Json* type = member(*scheme, "type");
    if (bits != nullptr && *bits == 8 && type != nullptr && *type == "float") out.has_fp8_kv = true;
    else
        out.notes.push_back(
            fmt::format("{}.kv_cache_scheme {} is not FP8; the KV cache stays unquantised", where, brief(*scheme)));
}

Status add_compressed_tensors(const Json& config, const std::string& where, QuantDeclaration& out) {
    TRY_ASSIGN(const auto format, text_member(config, "format", where));
    constexpr std::string_view kKnown[] = {
        "", "nvfp4-pack-quantized", "float-quantized", "naive-quantized", "mixed-precision", "dense"};
    if (std::find(std::begin(kKnown), std::end(kKnown), format) == std::end(kKnown)) {
        return refuse(fmt::format("compressed-tensors format '{}'", printable(format)), where);
    }
    if (const Json* transform = member(config, "transform_config"); transform != nullptr && !transform->empty()) {
        return refuse("compressed-tensors with weight transforms", where + ".transform_config");
    }
    if (const Json* sparsity = member(config, "sparsity_config")) {
        TRY_ASSIGN(const auto sparse_format, text_member(*sparsity, "format", where + ".sparsity_config"));
        if (!sparse_format.empty() && sparse_format != "dense") {
            return refuse(fmt::format("sparse format '{}'", printable(sparse_format)), where + ".sparsity_config");
        }
    }
    TRY(add_config_groups(config, where, out));
    TRY_ASSIGN(const auto ignored, text_list(config, "ignore", where));
    for (const auto& text : ignored) {
        if (const auto pattern = NamePattern::compressed_tensors(text)) {
            out.exclusions.push_back(
                {*pattern, !text.starts_with("re:"), fmt::format("{}.ignore lists '{}'", where, printable(text))});
        }
    }
    return {};
}

// Qwen and DeepSeek files: E4M3 weights with one scale per block or per tensor.
Status add_fp8_method(const Json& config, const std::string& where, QuantDeclaration& out) {
    QuantClaim claim;
    claim.weights = ClaimedWeights::fp8;
    claim.source = where + ".quant_method is fp8";
    const Json* block = member(config, "weight_block_size");
    if (block != nullptr && *block != Json::array({128, 128})) {
        return refuse(fmt::format("weight_block_size {} (only [128, 128] is)", brief(*block)), where);
    }
    TRY_ASSIGN(const auto fmt_name, text_member(config, "fmt", where));
    if (!fmt_name.empty() && fmt_name != "e4m3") return refuse(fmt::format("FP8 format '{}'", printable(fmt_name)), where);
    TRY_ASSIGN(const auto scheme, text_member(config, "activation_scheme", where));
    if (scheme == "dynamic") claim.inputs = block != nullptr ? ClaimedInputs::per_block : ClaimedInputs::per_token;
    else if (scheme == "static") claim.inputs = ClaimedInputs::fixed_scale;
    else if (!scheme.empty()) return refuse(fmt::format("activation_scheme '{}'", printable(scheme)), where);
    out.claims.push_back(std::move(claim));
    for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
        TRY_ASSIGN(const auto excluded, text_list(config, key, where));
        for (const auto& text : excluded) {
            out.exclusions.push_back({NamePattern::dotted_part(text), text == "lm_head" || text.find('.') != std::string::npos,
                                      fmt::format("{}.{} lists '{}'", where, key, printable(text))});
        }
    }
    return {};
}

Status add_quantization_config(const Json& config, const std::string& where, QuantDeclaration& out) {
    if (!config.is_object()) return invalid_input(fmt::format("{} is {}, expected an object", where, brief(config)));
    TRY_ASSIGN(auto method, text_member(config, "quant_method", where));
    if (method.empty() && member(config, "quant_algo") != nullptr) method = "modelopt";
    add_kv_scheme(config, where, out);
    if (method.starts_with("modelopt")) {
        TRY(add_modelopt(config, where, "ignore", out));
        return add_config_groups(config, where, out);
    }
    if (method == "compressed-tensors") return add_compressed_tensors(config, where, out);
    if (method == "fp8") return add_fp8_method(config, where, out);
    for (const auto& foreign : kForeignMethods) {
        if (foreign.name == method) return refuse(fmt::format("{} quantisation", foreign.title), where);
    }
    return refuse(fmt::format("quant_method '{}'", printable(method)), where);
}

Status add_hf_quant_config(const Json& file, QuantDeclaration& out) {
    const std::string where = "hf_quant_config.json: quantization";
    if (!file.is_object()) return invalid_input("hf_quant_config.json: expected a JSON object");
    const Json* quantization = member(file, "quantization");
    if (quantization == nullptr) return {};
    if (!quantization->is_object())
        return invalid_input(fmt::format("{} is {}, expected an object", where, brief(*quantization)));
    TRY(add_modelopt(*quantization, where, "exclude_modules", out));
    TRY_ASSIGN(const auto kv, text_member(*quantization, "kv_cache_quant_algo", where));
    if (kv == "FP8") out.has_fp8_kv = true;
    else if (!kv.empty())
        out.notes.push_back(
            fmt::format("{}.kv_cache_quant_algo {} is not FP8; the KV cache stays unquantised", where, printable(kv)));
    return {};
}

// Statements about all quantised modules must agree with each other, whichever file they stand in.
Status check_global_claims(const QuantDeclaration& declaration) {
    const QuantClaim* first = nullptr;
    for (const auto& claim : declaration.claims) {
        if (claim.is_by_name) continue;
        if (first == nullptr) first = &claim;
        if (first->weights != claim.weights) {
            return corrupt_data(
                fmt::format("{}, but {}; one of them is wrong, ask the checkpoint's author", first->source, claim.source));
        }
    }
    return {};
}

bool claim_covers(const QuantClaim& claim, const FoundFormat& found) {
    if (!claim.is_by_name) return true;
    return std::any_of(claim.modules.begin(), claim.modules.end(),
                       [&](const auto& pattern) { return pattern.matches(found.file_name, found.normalised); });
}

std::string found_text(const FoundFormat& found) {
    return fmt::format("the tensors of '{}' are {}{}", printable(found.file_name), to_string(found.layout),
                       found.has_input_scale ? " with an input scale" : "");
}

Error contradiction(std::string_view source, const FoundFormat& found) {
    return corrupt_data(fmt::format("{}, but {}; correct the metadata or fetch the checkpoint again", source, found_text(found)));
}

// One claim against a quantised module that it covers.
Status check_quantised(const QuantClaim& claim, const FoundFormat& found) {
    if ((claim.weights == ClaimedWeights::nvfp4) != (found.layout == WeightLayout::nvfp4))
        return contradiction(claim.source, found);
    // MTP layers are often quantised apart, without calibration: they only draft, so weights alone are enough there.
    const bool is_draft_only = found.normalised.starts_with("mtp.");
    if (claim.inputs == ClaimedInputs::fixed_scale && !found.has_input_scale && !is_draft_only) {
        return corrupt_data(
            fmt::format("{} with calibrated inputs, but '{}' has no input scale tensor; fetch the checkpoint again", claim.source,
                        printable(found.file_name)));
    }
    if (found.has_input_scale && claim.inputs != ClaimedInputs::fixed_scale && claim.inputs != ClaimedInputs::unsaid) {
        return contradiction(claim.source + " without fixed input scales", found);
    }
    return {};
}

}  // namespace

std::string_view unsupported_quant_advice() {
    return "use an NVFP4 or FP8 checkpoint (ModelOpt, compressed-tensors, Qwen block FP8), or the BF16 original (`espalier "
           "quantize` "
           "makes NVFP4 or FP8 from it)";
}

Result<QuantDeclaration> parse_quant_declaration(const Json& config, const Json* hf_quant_config) {
    QuantDeclaration declaration;
    if (const Json* direct = member(config, "quantization_config")) {
        TRY(add_quantization_config(*direct, "config.json: quantization_config", declaration));
    } else if (const Json* text = member(config, "text_config")) {
        if (const Json* nested = member(*text, "quantization_config")) {
            TRY(add_quantization_config(*nested, "config.json: text_config.quantization_config", declaration));
        }
    }
    if (hf_quant_config != nullptr) TRY(add_hf_quant_config(*hf_quant_config, declaration));
    TRY(check_global_claims(declaration));
    return declaration;
}

Result<DeclarationCheck> check_declaration(const QuantDeclaration& declaration, const FoundFormat& found) {
    const bool is_nvfp4 = found.layout == WeightLayout::nvfp4;
    const bool is_quantised = is_nvfp4 || found.layout == WeightLayout::fp8_tensor || found.layout == WeightLayout::fp8_channel ||
                              found.layout == WeightLayout::fp8_block;
    for (const auto& exclusion : declaration.exclusions) {
        if (!exclusion.modules.matches(found.file_name, found.normalised)) continue;
        if (!is_quantised) return DeclarationCheck{};
        if (exclusion.is_exact) return contradiction(exclusion.source + " as not quantised", found);
        return DeclarationCheck{ClaimedInputs::unsaid, fmt::format("{} as not quantised, but {}; the tensors decide",
                                                                   exclusion.source, found_text(found))};
    }
    // What is said about a module by name stands above what is said about all.
    const bool has_named = std::any_of(declaration.claims.begin(), declaration.claims.end(),
                                       [&](const auto& claim) { return claim.is_by_name && claim_covers(claim, found); });
    auto inputs = ClaimedInputs::unsaid;
    for (const auto& claim : declaration.claims) {
        if (claim.is_by_name != has_named || !claim_covers(claim, found)) continue;
        if (is_quantised) {
            TRY(check_quantised(claim, found));
            if (claim.inputs != ClaimedInputs::unsaid) inputs = claim.inputs;
        } else if (claim.is_by_name && claim.is_exact) {
            return contradiction(claim.source, found);
        }
    }
    if (inputs != ClaimedInputs::unsaid || !is_quantised || has_named) return DeclarationCheck{inputs, ""};
    for (const auto& claim : declaration.claims) {
        if (claim.has_unread_pattern && (claim.weights == ClaimedWeights::nvfp4) == is_nvfp4) inputs = claim.inputs;
    }
    return DeclarationCheck{inputs, ""};
}

}  // namespace espalier::checkpoint
