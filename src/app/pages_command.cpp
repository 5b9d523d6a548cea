// espalier completion, espalier man: generated from the command line's own definition.
#include <cstdio>

#include "app/cli_pages.h"
#include "app/commands.h"

namespace espalier::app {

void add_pages(CLI::App& parent, Action& action) {
    CLI::App* completion = parent.add_subcommand("completion", "Prints a shell's completion script");
    completion->add_option("SHELL", "bash")->required()->check(CLI::IsMember({"bash"}));
    completion->footer("Example: source <(espalier completion bash)");
    completion->callback([&parent, &action] {
        action = [&parent]() -> Status {
            std::fputs(bash_completion(parent).c_str(), stdout);
            return {};
        };
    });
    CLI::App* man = parent.add_subcommand("man", "Prints the manual page");
    man->footer("Example: espalier man | man -l -");
    man->callback([&parent, &action] {
        action = [&parent]() -> Status {
            std::fputs(man_page(parent).c_str(), stdout);
            return {};
        };
    });
}

}  // namespace espalier::app
