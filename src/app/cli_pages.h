// What is generated from the command line's own definition: the manual page and the shell completion, so that neither can say
// something else than --help does.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace espalier::app {

// espalier(1) in the man macros of troff.
std::string man_page(const CLI::App& root);
// A completion script for bash: subcommands, options, their words, model names, files.
std::string bash_completion(const CLI::App& root);

}  // namespace espalier::app
