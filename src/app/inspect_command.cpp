// espalier inspect: what a model folder holds, and what running it would need.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "app/builtin_model.h"
#include "app/commands.h"
#include "app/model_files.h"
#include "checkpoint/gguf_files.h"
#include "checkpoint/summary.h"
#include "engine/memory_plan.h"
#include "model/config.h"

namespace espalier::app {
namespace {

struct InspectFlags {
    engine::ModelOptions model;
    int32_t context = 0;
    int32_t parallel = 3;
    bool as_json = false;
};

struct TextSide {
    std::string tokenizer = "none";
    std::string chat_template = "none";
    std::string tool_format = "none";
};

// The text side may be missing: weights alone can be inspected.
TextSide inspect_text(const std::string& path) {
    TextSide side;
    if (!checkpoint::is_gguf(path) && !std::filesystem::exists(path + "/tokenizer.json")) return side;
    const auto files = load_model_files(path, "");
    if (!files) {
        side.tokenizer = files.error().message;
        return side;
    }
    side.tokenizer =
        fmt::format("{} ids, {} added tokens", files->tokenizer->vocab_size(), files->tokenizer->added_tokens().size());
    if (files->chat_template) {
        side.chat_template = fmt::format("{} bytes", files->chat_template->source().size());
        side.tool_format = files->tool_format.name;
    }
    return side;
}

cache::StateShape state_shape(const model::ModelConfig& config, const checkpoint::CheckpointSummary& summary) {
    cache::StateShape shape;
    for (const model::LayerKind kind : config.layers)
        ++(kind == model::LayerKind::attention ? shape.n_kv_layers : shape.n_recurrent_layers);
    if (summary.has_mtp) ++shape.n_kv_layers;
    shape.n_kv_heads = config.n_kv_heads;
    shape.head_dim = config.head_dim;
    shape.kv = summary.declares_fp8_kv ? kernels::KvType::fp8 : kernels::KvType::bf16;
    shape.n_value_heads = config.n_value_heads;
    shape.key_dim = config.key_dim;
    shape.value_dim = config.value_dim;
    shape.conv_channels = config.conv_channels();
    shape.hidden = config.hidden;
    return shape;
}

// Bytes of weights that stay in the file: with a head of its own the embedding is only looked up, a row a token.
int64_t mapped_bytes(const checkpoint::CheckpointSummary& summary) {
    if (!summary.has_lm_head) return 0;
    for (const checkpoint::ModuleGroup& group : summary.groups)
        if (group.name == "embed_tokens" && !group.is_copied) return group.bytes;
    return 0;
}

Status inspect(InspectFlags& flags) {
    TRY_ASSIGN(flags.model.path, model_or_builtin(flags.model.path));
    TRY_ASSIGN(auto checkpoint, checkpoint::Checkpoint::open(flags.model.path));
    const checkpoint::CheckpointSummary summary = checkpoint::summarize(*checkpoint);
    TRY_ASSIGN(const model::ModelConfig config, model::ModelConfig::parse(checkpoint->text_config()));
    const TextSide text = inspect_text(flags.model.path);
    engine::MemoryRequest request;
    request.shape = state_shape(config, summary);
    request.context_trained = config.context_trained;
    request.context_tokens = flags.context;
    request.sequences_max = flags.parallel;
    const int64_t weights = summary.bytes - summary.bytes_visual;
    const int64_t mapped = mapped_bytes(summary);
    const int64_t available = engine::available_memory_bytes();
    request.available_bytes = available > weights ? available - weights : 0;
    const auto plan = engine::plan_memory(request);
    if (flags.as_json) {
        Json json = checkpoint::summary_json(summary);
        json["tokenizer"] = text.tokenizer;
        json["chat_template"] = text.chat_template;
        json["tool_format"] = text.tool_format;
        Json memory = {{"weights_bytes", weights},
                       {"weights_mapped_bytes", mapped},
                       {"kv_bytes_per_token", request.shape.page_bytes() / cache::kPageTokens},
                       {"state_bytes", request.shape.state_bytes()},
                       {"available_bytes", available}};
        if (plan) {
            memory["context_tokens"] = plan->context_tokens;
            memory["kv_bytes"] = static_cast<int64_t>(plan->n_pages) * static_cast<int64_t>(request.shape.page_bytes());
            memory["states_bytes"] = static_cast<int64_t>(plan->n_states) * static_cast<int64_t>(request.shape.state_bytes());
            memory["resident_bytes"] = weights - mapped + plan->bytes;
        } else {
            memory["error"] = plan.error().message;
        }
        json["memory"] = std::move(memory);
        std::puts(dump_json(json, 2).c_str());
        return {};
    }
    std::fputs(checkpoint::summary_text(summary).c_str(), stdout);
    std::printf("tokenizer      %s\nchat template  %s\ntool format    %s\n", text.tokenizer.c_str(), text.chat_template.c_str(),
                text.tool_format.c_str());
    const std::string in_file =
        mapped > 0 ? fmt::format(" ({} MiB of them embedding rows that stay in the file)", mapped >> 20) : "";
    std::printf("memory         weights %lld MiB%s, keys and values %.1f KiB a token, a state %.1f MiB\n",
                static_cast<long long>(weights >> 20), in_file.c_str(),
                static_cast<double>(request.shape.page_bytes()) / cache::kPageTokens / 1024,
                static_cast<double>(request.shape.state_bytes()) / 1048576);
    if (plan) {
        std::printf("plan           context %d tokens, %lld MiB beside the weights, %lld MiB available\n", plan->context_tokens,
                    static_cast<long long>(plan->bytes >> 20), static_cast<long long>(available >> 20));
    } else {
        std::printf("plan           %s\n", plan.error().message.c_str());
    }
    return {};
}

}  // namespace

void add_inspect(CLI::App& parent, Action& action) {
    auto flags = std::make_shared<InspectFlags>();
    CLI::App* c = parent.add_subcommand("inspect", "Shows what a model folder or GGUF file holds and what running it needs");
    c->add_option("MODEL", flags->model.path, "Model folder or GGUF file; default: the built-in demo model");
    c->add_option("--ctx", flags->context, "Context to plan for")->check(CLI::Range(1, 1 << 30));
    c->add_option("--parallel", flags->parallel, "Requests at the same time")
        ->check(CLI::Range(1, 1 << 30))
        ->capture_default_str();
    c->add_flag("--json", flags->as_json, "Print the result as JSON");
    c->footer("Example: espalier inspect MODEL --ctx 65536");
    c->callback([flags, &action] { action = [flags] { return inspect(*flags); }; });
}

}  // namespace espalier::app
