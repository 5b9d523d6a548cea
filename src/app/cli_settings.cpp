#include "app/cli_settings.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "base/environment.h"

namespace espalier::app {
namespace {

// "cache-ram" is ESPALIER_CACHE_RAM.
std::string variable_of(const std::string& option) {
    std::string name = "ESPALIER_" + option;
    for (char& c : name) {
        if (c == '-') c = '_';
        else if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return name;
}

// CLI11 lets a file win over the environment; here its keys that the environment has, too, are left out.
class ConfigBelowEnvironment : public CLI::ConfigTOML {
public:
    std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
        std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(input);
        std::erase_if(found, [](const CLI::ConfigItem& item) {
            return !item.inputs.empty() && environment_variable(variable_of(item.name).c_str()).has_value();
        });
        return found;
    }
};

// Names the variables of those options that have one set, so that --help shows what is in force.
void name_variables(CLI::App& app, std::string& in_force) {
    for (CLI::Option* option : app.get_options()) {
        const auto& names = option->get_lnames();
        const std::string name = !names.empty() ? names.front() : option->get_positional() ? option->get_name(true) : "";
        if (name.empty() || name == "help" || name == "version" || name == "config") continue;
        const std::string variable = variable_of(name);
        if (!environment_variable(variable.c_str())) continue;
        option->envname(variable);
        in_force += (in_force.empty() ? "" : ", ") + variable;
    }
}

}  // namespace

void add_config(CLI::App& root) {
    root.set_config("--config", "", "Read options from a TOML file");
    root.config_formatter(std::make_shared<ConfigBelowEnvironment>());
    root.allow_config_extras(CLI::config_extras_mode::error);
}

std::string read_environment(CLI::App& root, int argc, const char* const* argv) {
    std::string in_force;
    CLI::App* app = &root;
    for (int i = 1; i < argc; ++i) {
        const auto found =
            app->get_subcommands([word = std::string(argv[i])](const CLI::App* sub) { return sub->get_name() == word; });
        if (!found.empty()) app = found.front();
    }
    if (app != &root) name_variables(*app, in_force);
    return in_force;
}

std::string explain_usage(const CLI::ParseError& error, const std::string& variables) {
    constexpr std::string_view kUnknownKey = "INI was not able to parse ";
    constexpr std::string_view kSectionBegin = ".++";
    std::string what = error.what();
    if (what.starts_with(kUnknownKey)) {
        std::string key = what.substr(kUnknownKey.size());
        if (key.ends_with(kSectionBegin)) key.resize(key.size() - kSectionBegin.size());
        what = "the --config file says " + key + ", which is no command or option; expected lines as [serve] and port = 8080";
    }
    std::replace(what.begin(), what.end(), '\n', ' ');
    return what + "; see --help" + (variables.empty() ? "" : "; also read: " + variables);
}

}  // namespace espalier::app
