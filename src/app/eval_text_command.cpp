// espalier eval tokenize, detokenize, render, toolcalls, iou, bfcl: JSON lines in, JSON lines out; no model runs.
#include <iostream>
#include <memory>

#include "app/builtin_model.h"
#include "app/commands.h"
#include "app/gguf_text.h"
#include "app/model_files.h"
#include "base/mapped_file.h"
#include "bench/dataset.h"
#include "probe/bfcl_command.h"
#include "probe/draft_replay.h"
#include "probe/iou_command.h"
#include "probe/render_command.h"
#include "probe/tokenize_command.h"
#include "probe/toolcalls_command.h"

namespace espalier::app {
namespace {

struct TextFlags {
    std::string model;
    std::string tokenizer;
    std::string template_path;
    probe::ToolcallsOptions toolcalls;
};

// MODEL or a file of its own; exactly one of them.
void add_source(CLI::App& command, TextFlags& flags, const char* option, std::string& path, const char* help) {
    CLI::Option_group* source = command.add_option_group("source", "Exactly one");
    source->add_option("MODEL", flags.model, "Model folder");
    source->add_option(option, path, help);
    source->require_option(1);
}

void add_tokenizer_command(CLI::App& eval, Action& action, const char* name, const char* help,
                           Status (*run)(const text::Tokenizer&, std::istream&, std::ostream&)) {
    auto flags = std::make_shared<TextFlags>();
    CLI::App* c = eval.add_subcommand(name, help);
    add_source(*c, *flags, "--tokenizer", flags->tokenizer, "tokenizer.json");
    c->footer(std::string("Example: espalier eval ") + name + " MODEL < lines.jsonl");
    c->callback([flags, run, &action] {
        action = [flags, run]() -> Status {
            TRY_ASSIGN(auto tokenizer, load_tokenizer(flags->tokenizer.empty() ? flags->model : flags->tokenizer));
            return run(*tokenizer, std::cin, std::cout);
        };
    });
}

void add_render(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<TextFlags>();
    CLI::App* c = eval.add_subcommand("render", "Renders conversations with the bare chat template");
    add_source(*c, *flags, "--template", flags->template_path, "Template file");
    c->footer("Example: espalier eval render --template chat_template.jinja < conversations.jsonl");
    c->callback([flags, &action] {
        action = [flags]() -> Status {
            std::shared_ptr<const text::ChatTemplate> chat_template;
            if (!flags->template_path.empty()) {
                TRY_ASSIGN(const std::string source, read_file(flags->template_path, size_t{8} << 20));
                TRY_ASSIGN(chat_template, text::ChatTemplate::parse(source));
            } else {
                TRY_ASSIGN(const ModelFiles files, load_model_files(flags->model, ""));
                chat_template = files.chat_template;
            }
            if (!chat_template) return invalid_input(flags->model + ": the model has no chat template");
            return probe::run_render(*chat_template, std::cin, std::cout);
        };
    });
}

void add_draft_replay(CLI::App& eval, Action& action) {
    struct Flags {
        std::string model, tokenizer, template_path, dataset;
        std::string draft = "auto";
        probe::DraftReplayOptions replay;
    };
    auto flags = std::make_shared<Flags>();
    CLI::App* c = eval.add_subcommand("draft-replay", "Forward passes that recorded replies take with drafts of text alone");
    c->add_option("MODEL", flags->model, "Model folder for tokenizer and template; default: the built-in demo model");
    c->add_option("--tokenizer", flags->tokenizer, "tokenizer.json");
    c->add_option("--chat-template", flags->template_path, "Template file");
    c->add_option("--dataset", flags->dataset, "Recorded conversations, JSON lines")->required();
    add_draft_option(*c, flags->draft);
    c->add_option("--nodes", flags->replay.nodes_max, "Draft nodes of a pass at most")
        ->check(CLI::Range(1, decode::kDraftNodesMax))
        ->capture_default_str();
    c->footer("Example: espalier eval draft-replay --dataset conversations.jsonl --draft suffix,template,prefill");
    c->callback([flags, &action] {
        action = [flags]() -> Status {
            TRY_ASSIGN(flags->replay.draft, decode::DraftOptions::parse(flags->draft));
            TRY_ASSIGN(const bench::Dataset dataset, bench::load_dataset(flags->dataset));
            if (flags->tokenizer.empty() || flags->template_path.empty()) {
                TRY_ASSIGN(flags->model, model_or_builtin(flags->model));
                TRY_ASSIGN(const ModelFiles files, load_model_files(flags->model, flags->template_path));
                flags->replay.tokenizer = files.tokenizer;
                flags->replay.chat_template = files.chat_template;
            } else {
                TRY_ASSIGN(const std::string source, read_file(flags->template_path, size_t{8} << 20));
                TRY_ASSIGN(flags->replay.chat_template, text::ChatTemplate::parse(source));
            }
            if (!flags->tokenizer.empty()) {
                TRY_ASSIGN(flags->replay.tokenizer, text::Tokenizer::load(flags->tokenizer));
            }
            if (!flags->replay.chat_template) return invalid_input(flags->model + ": the model has no chat template");
            TRY_ASSIGN(const Json result, probe::replay_drafts(dataset, flags->replay));
            std::cout << dump_json(result) << '\n';
            return {};
        };
    });
}

void add_toolcalls(CLI::App& eval, Action& action) {
    auto flags = std::make_shared<TextFlags>();
    CLI::App* c = eval.add_subcommand("toolcalls", "Parses model output into content, reasoning and tool calls");
    c->add_option("--format", flags->toolcalls.format, "Tool format")->capture_default_str();
    c->add_option("--split", flags->toolcalls.split, "How the text is cut: whole, bytes, halves, seed:N")->capture_default_str();
    c->footer("Example: espalier eval toolcalls --split bytes < cases.jsonl");
    c->callback([flags, &action] {
        action = [flags]() -> Status { return probe::run_toolcalls(flags->toolcalls, std::cin, std::cout); };
    });
}

void add_iou(CLI::App& eval, Action& action) {
    CLI::App* c = eval.add_subcommand("iou", "Scores produced tool calls against recorded ones");
    c->footer("Example: espalier eval iou < turns.jsonl");
    c->callback([&action] { action = [] { return probe::run_iou(std::cin, std::cout); }; });
}

void add_bfcl(CLI::App& eval, Action& action) {
    auto originals = std::make_shared<std::string>();
    CLI::App* c = eval.add_subcommand("bfcl", "Scores answers to single-turn function-calling samples");
    c->add_option("--originals", *originals, "Samples as JSON lines: id, subset, functions, ground_truth")->required();
    c->footer("Example: espalier eval bfcl --originals originals.jsonl < answers.jsonl");
    c->callback(
        [originals, &action] { action = [originals] { return probe::run_bfcl_verdicts(*originals, std::cin, std::cout); }; });
}

}  // namespace

void add_eval_text(CLI::App& eval, Action& action) {
    add_tokenizer_command(eval, action, "tokenize", "Text to token ids", &probe::run_tokenize);
    add_tokenizer_command(eval, action, "detokenize", "Token ids to text, piece by piece", &probe::run_detokenize);
    add_render(eval, action);
    add_toolcalls(eval, action);
    add_draft_replay(eval, action);
    add_iou(eval, action);
    add_bfcl(eval, action);
}

}  // namespace espalier::app
