// espalier bench: the benchmark client, and measurements in process.
#include <cstdio>
#include <memory>

#include "app/builtin_model.h"
#include "app/commands.h"
#include "base/mapped_file.h"
#include "bench/agentic.h"
#include "bench/bfcl.h"
#include "probe/bench_model.h"

namespace espalier::app {
namespace {

struct AgenticFlags {
    bench::AgenticOptions options;
    std::string conversations;
    std::string turns;
    bool replay_lengths = false;
    bool as_json = false;
};

Status run_agentic(AgenticFlags& flags) {
    if (!flags.conversations.empty()) {
        TRY_ASSIGN(flags.options.conversations, bench::parse_index_list(flags.conversations));
    }
    if (!flags.turns.empty()) {
        TRY_ASSIGN(flags.options.turns, bench::parse_turn_range(flags.turns));
    }
    if (flags.replay_lengths) flags.options.reply_length = bench::ReplyLength::recorded;
    flags.options.version = ESPALIER_VERSION;
    flags.options.on_progress = bench::terminal_progress();
    TRY_ASSIGN(const bench::AgenticReport report, bench::run_agentic(flags.options));
    if (flags.as_json) std::puts(dump_json(report.to_json(), 2).c_str());
    else std::fputs(report.to_table().c_str(), stdout);
    return {};
}

void add_agentic(CLI::App& bench, Action& action) {
    auto flags = std::make_shared<AgenticFlags>();
    CLI::App* c = bench.add_subcommand("agentic", "Replays recorded agent conversations against a server");
    c->add_option("--url", flags->options.url, "http://host:port of an OpenAI-compatible server")->required();
    c->add_option("--dataset", flags->options.dataset_path, "Conversations as JSON lines")->required();
    c->add_option("--out", flags->options.out_dir, "Folder for the results")->required();
    c->add_option("--conversations", flags->conversations, "Which ones, e.g. 0,3-5; default: all");
    c->add_option("--turns", flags->turns, "Which turns, e.g. 1-9; default: all");
    c->add_flag("--replay-lengths", flags->replay_lengths, "Ask for exactly the recorded reply's number of tokens");
    auto* tokenizer = c->add_option("--tokenizer", flags->options.tokenizer_path, "tokenizer.json for token counts");
    auto* chat_template = c->add_option("--chat-template", flags->options.chat_template_path, "Chat template for token counts");
    tokenizer->needs(chat_template);
    chat_template->needs(tokenizer);
    c->add_option("--model", flags->options.model, "Model name to send; default: what the server lists");
    c->add_option("--api-key", flags->options.api_key, "Sent as a bearer token");
    c->add_flag("--json", flags->as_json, "Print the result as JSON");
    c->footer("Example: espalier bench agentic --url http://127.0.0.1:8080 --dataset demo/data/agentic.jsonl --out result");
    c->callback([flags, &action] { action = [flags] { return run_agentic(*flags); }; });
}

void add_bfcl(CLI::App& bench, Action& action) {
    struct Flags {
        bench::BfclOptions options;
        bool as_json = false;
    };
    auto flags = std::make_shared<Flags>();
    CLI::App* c = bench.add_subcommand("bfcl", "Function-calling accuracy on single-turn samples");
    c->add_option("--url", flags->options.url, "http://host:port of an OpenAI-compatible server")->required();
    c->add_option("--dataset", flags->options.dataset_path, "Samples as JSON lines: messages, tools, ground_truth")->required();
    c->add_option("--out", flags->options.out_dir, "Folder for the results")->required();
    c->add_option("--model", flags->options.model, "Model name to send; default: what the server lists");
    c->add_option("--api-key", flags->options.api_key, "Sent as a bearer token");
    c->add_flag("--json", flags->as_json, "Print the result as JSON");
    c->footer("Example: espalier bench bfcl --url http://127.0.0.1:8080 --dataset samples.jsonl --out result");
    c->callback([flags, &action] {
        action = [flags]() -> Status {
            flags->options.on_progress = bench::terminal_progress();
            TRY_ASSIGN(const bench::BfclReport report, bench::run_bfcl(flags->options));
            if (flags->as_json) std::puts(dump_json(report.to_json(), 2).c_str());
            else std::fputs(report.to_table().c_str(), stdout);
            return {};
        };
    });
}

void add_model(CLI::App& bench, Action& action) {
    struct Flags {
        probe::BenchModelOptions options;
        bool as_json = false;
    };
    auto flags = std::make_shared<Flags>();
    CLI::App* c = bench.add_subcommand("model", "Speed of one model in process, with the machine's limits beside it");
    add_model_options(*c, flags->options.model);
    c->add_option("-p", flags->options.prompts, "Prefill sizes, e.g. 512,2048")->delimiter(',')->capture_default_str();
    c->add_option("-n", flags->options.replies, "Decode lengths")->delimiter(',')->capture_default_str();
    c->add_option("-d", flags->options.depths, "Tokens already in the sequence")->delimiter(',')->capture_default_str();
    c->add_option("-m", flags->options.verify, "Rows of verify passes, e.g. 1,4,8,16")->delimiter(',');
    c->add_option("-r", flags->options.repetitions, "Repetitions, interleaved")->capture_default_str();
    c->add_flag("--profile", flags->options.has_profile, "Say where the time of each test goes");
    c->add_flag("--json", flags->as_json, "Print the result as JSON");
    c->footer("Example: espalier bench model MODEL -p 512 -n 64 -d 0,8192 -m 1,4,8,16 -r 5 --json");
    c->callback([flags, &action] {
        action = [flags]() -> Status {
            TRY_ASSIGN(flags->options.model.path, model_or_builtin(flags->options.model.path));
            TRY_ASSIGN(const probe::BenchModelReport report, probe::bench_model(flags->options));
            if (flags->as_json) std::puts(dump_json(report.to_json(), 2).c_str());
            else std::fputs(report.to_table().c_str(), stdout);
            return {};
        };
    });
}

}  // namespace

void add_bench(CLI::App& parent, Action& action) {
    CLI::App* bench = parent.add_subcommand("bench", "Benchmarks");
    bench->require_subcommand(1);
    add_agentic(*bench, action);
    add_bfcl(*bench, action);
    add_model(*bench, action);
}

}  // namespace espalier::app
