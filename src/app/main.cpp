// The command line: one binary, one subcommand per thing it does. Exit status: 0 success, 1 failed task, 2 bad usage.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "app/cli_settings.h"
#include "app/commands.h"
#include "base/environment.h"
#include "decode/draft_options.h"
#include "kernels/dispatch.h"

namespace espalier::app {

std::string version_text() {
    const auto isa = kernels::choose_isa(environment_variable("ESPALIER_ISA").value_or(""));
    std::string tier = isa ? std::string(kernels::to_string(*isa)) : isa.error().message;
    return fmt::format("espalier {} (gcc {}, kernels {})", ESPALIER_VERSION, __VERSION__, tier);
}

void add_draft_option(CLI::App& command, std::string& draft) {
    command
        .add_option("--draft", draft,
                    "Speculation: auto, off, or a comma list of mtp[:steps=N,topk=N,nodes=N], suffix, template, prefill")
        ->check([](const std::string& text) {
            const auto options = decode::DraftOptions::parse(text);
            return options ? std::string() : options.error().message;
        })
        ->capture_default_str();
}

void add_model_options(CLI::App& command, engine::ModelOptions& options) {
    options.isa = environment_variable("ESPALIER_ISA").value_or("");
    command.add_option("MODEL", options.path,
                       "Model folder, GGUF file, or a name that espalier models lists; default: the built-in demo model");
    command.add_option("--acts", options.acts, "Activations in quantised products: auto, ckpt (a4), a8, a16, a32")
        ->check(CLI::IsMember({"auto", "ckpt", "a4", "a8", "a16", "a32"}))
        ->capture_default_str();
    command.add_option("--kv-type", options.kv_type, "Keys and values: auto, f32, bf16, fp8")
        ->check(CLI::IsMember({"auto", "f32", "bf16", "fp8"}))
        ->capture_default_str();
    command.add_option("--threads", options.n_threads, "Worker threads, 0 = all CPUs")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
}

namespace {

int report(const Error& error) {
    std::fprintf(stderr, "espalier: %s: %s\n", std::string(to_string(error.code)).c_str(), error.message.c_str());
    return 1;
}

int run(int argc, char** argv) {
    CLI::App cli("Espalier runs Qwen3.5/3.6 models for coding agents on this machine.", "espalier");
    cli.set_version_flag("--version", version_text);
    cli.require_subcommand(1);
    add_config(cli);
    Action action;
    add_run(cli, action);
    add_serve(cli, action);
    add_inspect(cli, action);
    add_quantize(cli, action);
    add_cache(cli, action);
    add_pull(cli, action);
    add_models(cli, action);
    add_doctor(cli, action);
    add_bench(cli, action);
    add_eval(cli, action);
    add_pages(cli, action);
    for (CLI::App* command : cli.get_subcommands({})) command->fallthrough();  // --config may follow it
    const std::string variables = read_environment(cli, argc, argv);
    try {
        cli.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) return cli.exit(e);  // help and version
        std::fprintf(stderr, "espalier: invalid_input: %s\n", explain_usage(e, variables).c_str());
        return 2;
    }
    const Status status = action();
    return status ? 0 : report(status.error());
}

}  // namespace
}  // namespace espalier::app

int main(int argc, char** argv) {
    try {
        return espalier::app::run(argc, argv);
    } catch (const std::bad_alloc&) {
        return espalier::app::report(espalier::exhausted("out of memory"));
    } catch (const std::exception& e) {
        return espalier::app::report(espalier::internal_error(e.what()));
    }
}
