// Options that are not on the command line: ESPALIER_* variables and the file of --config. The command line wins over the
// environment, the environment over the file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace espalier::app {

// Adds --config, before the subcommands are added. A key there that no command has is refused.
void add_config(CLI::App& root);

// After the subcommands are added: lets every option of the one that argv names be given as ESPALIER_<NAME>: --cache-ram as
// ESPALIER_CACHE_RAM, MODEL as ESPALIER_MODEL. Returns the variables that are set, separated by ", ".
std::string read_environment(CLI::App& root, int argc, const char* const* argv);

// What is wrong with the options, in one line; `variables` are those that read_environment() found.
std::string explain_usage(const CLI::ParseError& error, const std::string& variables);

}  // namespace espalier::app
