// One function per subcommand: adds its flags to the command line and says what to run. Flags in, objects wired, nothing else.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/result.h"
#include "engine/load.h"

namespace espalier::app {

// What a subcommand does once flags are parsed. A returned error becomes the one line on stderr and exit status 1.
using Action = std::function<Status()>;

void add_run(CLI::App& parent, Action& action);
void add_serve(CLI::App& parent, Action& action);
void add_inspect(CLI::App& parent, Action& action);
void add_quantize(CLI::App& parent, Action& action);
void add_cache(CLI::App& parent, Action& action);
void add_pull(CLI::App& parent, Action& action);
void add_models(CLI::App& parent, Action& action);
void add_doctor(CLI::App& parent, Action& action);
void add_pages(CLI::App& parent, Action& action);
void add_bench(CLI::App& parent, Action& action);
void add_eval(CLI::App& parent, Action& action);
// The eval subcommands that need no model (text, scores).
void add_eval_text(CLI::App& eval, Action& action);

// MODEL, --acts, --kv-type, --threads of every command that runs a model. An absent MODEL is the built-in one (builtin_model.h).
void add_model_options(CLI::App& command, engine::ModelOptions& options);

// --draft, checked.
void add_draft_option(CLI::App& command, std::string& draft);

// Version, compiler and the kernel tier of this CPU, for --version.
std::string version_text();

}  // namespace espalier::app
