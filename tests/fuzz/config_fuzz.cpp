// fuzz-links: espalier_checkpoint
// config.json, generation_config.json and the quantisation metadata: up to three JSON texts, separated by newlines (config,
// hf_quant_config, generation_config).
#include <cstdlib>
#include <string_view>

#include "checkpoint/hf_config.h"
#include "checkpoint/quant_declaration.h"

namespace {

using namespace espalier;
using namespace espalier::checkpoint;

std::string_view take_line(std::string_view& text) {
    const size_t end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return line;
}

void check_one_line(const Error& error) {
    if (error.message.find('\n') != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto config_text = take_line(text);
    const auto quant_text = take_line(text);
    const auto config = parse_hf_config(config_text, text, "fuzz");
    if (!config) {
        check_one_line(config.error());
        return 0;
    }
    const auto quant = parse_json(quant_text, "hf_quant_config.json", 32);
    const auto declaration = parse_quant_declaration(config->raw, quant ? &*quant : nullptr);
    if (!declaration) {
        check_one_line(declaration.error());
        return 0;
    }
    for (const auto layout : {WeightLayout::bf16, WeightLayout::nvfp4, WeightLayout::fp8_tensor, WeightLayout::fp8_block}) {
        for (const auto* name : {"model.language_model.layers.10.mlp.up_proj", "lm_head", "mtp.fc"}) {
            const FoundFormat found{name, normalise_name(name), layout, layout == WeightLayout::nvfp4};
            const auto check = check_declaration(*declaration, found);
            if (!check) check_one_line(check.error());
        }
    }
    return 0;
}
