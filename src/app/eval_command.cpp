// espalier eval: reference commands for checking the engine against official implementations.
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "app/commands.h"
#include "probe/eval_model.h"
#include "probe/make_model.h"

namespace espalier::app {
namespace {

// Options of one eval subcommand that runs a model; shared by the flag definitions and the action.
struct EvalFlags {
    probe::EvalOptions eval;
    std::string out;
    std::string chunks;
    std::string positions = "all";
    probe::LayersOptions layers;
    std::string module;
    probe::TreeOptions tree;
    int32_t steps = 8;
    int32_t next = -1;
    probe::GenerateOptions generate;
};

CLI::App* model_command(CLI::App& eval, const std::string& name, const std::string& help, EvalFlags& flags) {
    CLI::App* command = eval.add_subcommand(name, help);
    add_model_options(*command, flags.eval.model);
    command->get_option("MODEL")->required();
    return command;
}

void add_logits(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<EvalFlags>();
    CLI::App* c = model_command(eval, "logits", "Logits of every prompt position as .npy", *flags);
    c->add_option("--ids", flags->eval.ids_path, "JSON array of token ids")->required();
    c->add_option("--out", flags->out, "Output .npy [positions, vocab]")->required();
    c->add_option("--chunks", flags->chunks, "Split of the prompt, e.g. 7,1,64; the last entry repeats");
    c->add_option("--positions", flags->positions, "all or last")->check(CLI::IsMember({"all", "last"}))->capture_default_str();
    c->footer("Example: espalier eval logits MODEL --ids ids.json --out logits.npy --acts a32");
    c->callback([flags, &action] {
        action = [flags] {
            const auto positions = flags->positions == "all" ? probe::Positions::all : probe::Positions::last;
            return probe::eval_logits(flags->eval, flags->out, flags->chunks, positions);
        };
    });
}

void add_layers(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<EvalFlags>();
    CLI::App* c = model_command(eval, "layers", "Residual stream after every layer as .npy", *flags);
    CLI::Option_group* what = c->add_option_group("what", "At least one");
    what->add_option("--ids", flags->eval.ids_path, "JSON array of token ids: all layers");
    auto* layer =
        what->add_option("--layer", flags->layers.layer, "Only this layer, from a fresh state")->check(CLI::Range(0, 1 << 30));
    what->require_option(1, 2);
    auto* in = c->add_option("--in", flags->layers.in_path, "Input rows of that layer, .npy [n, hidden]")->needs(layer);
    layer->needs(in);
    c->add_option("--out", flags->out, "Output .npy [layers + 1, n, hidden], with --layer [n, hidden]")->required();
    c->footer("Example: espalier eval layers MODEL --ids ids.json --out hidden.npy");
    c->callback([flags, &action] { action = [flags] { return probe::eval_layers(flags->eval, flags->layers, flags->out); }; });
}

void add_linear(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<EvalFlags>();
    CLI::App* c = model_command(eval, "linear", "One linear module applied to given rows", *flags);
    c->add_option("--module", flags->module, "Module name in the checkpoint")->required();
    c->add_option("--in", flags->layers.in_path, "Input .npy [rows, inputs]")->required();
    c->add_option("--out", flags->out, "Output .npy [rows, outputs]")->required();
    c->footer("Example: espalier eval linear MODEL --module model.layers.0.mlp.up_proj --in x.npy --out y.npy");
    c->callback([flags, &action] {
        action = [flags] { return probe::eval_linear(flags->eval.model, flags->module, flags->layers.in_path, flags->out); };
    });
}

void add_state(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<EvalFlags>();
    CLI::App* c = model_command(eval, "state", "Recurrent state, conv columns, keys and values after a prompt", *flags);
    c->add_option("--ids", flags->eval.ids_path, "JSON array of token ids")->required();
    c->add_option("--out-dir", flags->out, "Folder for conv.npy, recurrent.npy, k.npy, v.npy")->required();
    c->footer("Example: espalier eval state MODEL --ids ids.json --out-dir state --kv-type f32");
    c->callback([flags, &action] { action = [flags] { return probe::eval_state(flags->eval, flags->out); }; });
}

void add_tree(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<EvalFlags>();
    CLI::App* c = model_command(eval, "tree", "Logits of a token tree after a prompt", *flags);
    c->add_option("--ids", flags->eval.ids_path, "JSON array of token ids")->required();
    c->add_option("--tree", flags->tree.tree_path, "JSON {\"tokens\", \"parents\"}; node 0 is the root with parent -1")
        ->required();
    auto* commit = c->add_option("--commit", flags->tree.commit, "Nodes of a path to commit, e.g. 0,2,5");
    auto* then = c->add_option("--then", flags->tree.then_path, "Token ids fed one by one after the commit");
    commit->needs(then);
    then->needs(commit);
    c->add_option("--out", flags->out, "Output .npy [nodes, vocab], with --then [ids, vocab]")->required();
    c->footer("Example: espalier eval tree MODEL --ids ids.json --tree tree.json --out tree.npy");
    c->callback([flags, &action] { action = [flags] { return probe::eval_tree(flags->eval, flags->tree, flags->out); }; });
}

void add_mtp(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<EvalFlags>();
    CLI::App* c = model_command(eval, "mtp", "Logits of the MTP head: prefill slots and recursive drafts", *flags);
    c->add_option("--ids", flags->eval.ids_path, "JSON array of token ids")->required();
    c->add_option("--steps", flags->steps, "Draft steps")->check(CLI::Range(1, 256))->capture_default_str();
    c->add_option("--next", flags->next, "Token after the prompt, default: the trunk's choice")->check(CLI::Range(0, 1 << 30));
    c->add_option("--out", flags->out, "Output .npy [n, vocab]; drafts go to FILE.draft.npy")->required();
    c->footer("Example: espalier eval mtp MODEL --ids ids.json --steps 8 --out mtp.npy");
    c->callback([flags, &action] {
        action = [flags] {
            const auto next = flags->next >= 0 ? std::optional(flags->next) : std::nullopt;
            return probe::eval_mtp(flags->eval, flags->steps, next, flags->out);
        };
    });
}

void add_generate(CLI::App& eval, Action& action, const std::string& name, const std::string& help) {
    auto flags = std::make_shared<EvalFlags>();
    CLI::App* c = model_command(eval, name, help, *flags);
    c->add_option("--ids", flags->eval.ids_path, "JSON array of token ids")->required();
    c->add_option("-n", flags->generate.n_tokens, "Tokens to generate")->check(CLI::Range(1, 1 << 18))->capture_default_str();
    c->add_flag("--json", flags->generate.as_object, "Print {\"ids\", \"rounds\", \"drafted\", \"accepted\"}");
    add_draft_option(*c, flags->generate.draft);
    if (name == "sample") {
        auto& s = flags->generate.sampling;
        s.temperature = 1.0f;
        c->add_option("--seed", s.seed, "Seed of the counter-based generator")->required();
        c->add_option("--temp", s.temperature, "Temperature")->capture_default_str();
        c->add_option("--top-k", s.top_k, "0 = off")->capture_default_str();
        c->add_option("--top-p", s.top_p, "1 = off")->capture_default_str();
        c->add_option("--min-p", s.min_p, "0 = off")->capture_default_str();
        c->add_option("--repetition-penalty", s.repetition_penalty, "1 = off")->capture_default_str();
        c->add_option("--presence-penalty", s.presence_penalty, "0 = off")->capture_default_str();
        c->add_option("--frequency-penalty", s.frequency_penalty, "0 = off")->capture_default_str();
    }
    c->footer("Example: espalier eval " + name + " MODEL --ids ids.json -n 64" + (name == "sample" ? " --seed 1" : ""));
    c->callback([flags, &action] {
        action = [flags]() -> Status {
            TRY_ASSIGN(const std::string line, probe::eval_generate(flags->eval, flags->generate));
            std::puts(line.c_str());
            return {};
        };
    });
}

void add_make_model(CLI::App& eval, Action& action) {
    auto options = std::make_shared<probe::MakeModelOptions>();
    CLI::App* c = eval.add_subcommand("make-model", "Writes a checkpoint of a real shape with random weights");
    c->add_option("--shape", options->shape, "tiny, 0.8b, 2b, 4b, 9b, 27b")
        ->check(CLI::IsMember({"tiny", "0.8b", "2b", "4b", "9b", "27b"}))
        ->required();
    c->add_option("--format", options->format, "bf16 or nvfp4")->check(CLI::IsMember({"bf16", "nvfp4"}))->required();
    c->add_option("--out", options->out_dir, "Folder to write")->required();
    c->add_option("--seed", options->seed, "Seed")->capture_default_str();
    c->add_option("--tokenizer", options->tokenizer_path,
                  "tokenizer.json to copy; its size becomes the vocabulary of a tiny model");
    c->add_option("--chat-template", options->chat_template_path, "Chat template to copy");
    c->footer("Example: espalier eval make-model --shape tiny --format bf16 --out model --seed 1");
    c->callback([options, &action] { action = [options] { return probe::make_model(*options); }; });
}

}  // namespace

void add_eval(CLI::App& parent, Action& action) {
    CLI::App* eval = parent.add_subcommand("eval", "Reference commands: what the model computes, as files to compare");
    eval->require_subcommand(1);
    add_logits(*eval, action);
    add_layers(*eval, action);
    add_linear(*eval, action);
    add_state(*eval, action);
    add_tree(*eval, action);
    add_mtp(*eval, action);
    add_generate(*eval, action, "greedy", "Greedy continuation as a JSON array of ids");
    add_generate(*eval, action, "sample", "Sampled continuation as a JSON array of ids");
    add_make_model(*eval, action);
    add_eval_text(*eval, action);
}

}  // namespace espalier::app
