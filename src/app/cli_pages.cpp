#include "app/cli_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace espalier::app {
namespace {

// Text for troff: backslashes and hyphens are characters, no line is a request.
std::string troff(std::string_view text) {
    std::string out;
    bool is_line_start = true;
    for (const char c : text) {
        if (is_line_start && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\') out += "\\e";
        else if (c == '-') out += "\\-";
        else out += c;
        is_line_start = c == '\n';
    }
    return out;
}

// What follows "--option": "INT", "auto|off"; empty for a flag.
std::string value_of(const CLI::Option& option) {
    if (option.get_expected_max() == 0) return "";
    const std::string type = option.get_type_name();
    const size_t begin = type.find('{');
    const size_t end = type.rfind('}');
    if (begin == std::string::npos || end == std::string::npos || end < begin) return type.substr(0, type.find(':'));
    std::string words = type.substr(begin + 1, end - begin - 1);
    std::replace(words.begin(), words.end(), ',', '|');
    return words;
}

std::vector<std::string> choices_of(const CLI::Option& option) {
    const std::string words = value_of(option);
    std::vector<std::string> choices;
    if (words.find('|') == std::string::npos) return choices;
    for (size_t begin = 0; begin <= words.size();) {
        const size_t end = std::min(words.find('|', begin), words.size());
        choices.push_back(words.substr(begin, end - begin));
        begin = end + 1;
    }
    return choices;
}

// Those of an app and of its option groups (nameless subcommands).
std::vector<const CLI::Option*> options_of(const CLI::App& app) {
    std::vector<const CLI::Option*> options = app.get_options();
    for (const CLI::App* group : app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
        const auto more = options_of(*group);
        options.insert(options.end(), more.begin(), more.end());
    }
    return options;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty() && !sub->get_group().empty(); });
}

std::string synopsis(const CLI::App& app, const std::string& path) {
    std::string line = "\\fB" + troff(path) + "\\fR";
    for (const CLI::Option* option : options_of(app)) {
        if (!option->get_positional()) continue;
        const std::string name = "\\fI" + troff(option->get_name(true)) + "\\fR";
        line += option->get_required() ? " " + name : " [" + name + "]";
    }
    return line + " [\\fIoptions\\fR]";
}

void add_options(const CLI::App& app, std::string& page) {
    for (const CLI::Option* option : options_of(app)) {
        if (option->get_name() == "--help" || option->get_name() == "-h,--help" || option->get_group().empty()) continue;
        const std::string names = option->get_positional() ? option->get_name(true) : option->get_name(false, true);
        std::string shown = names;
        for (size_t at = shown.find(','); at != std::string::npos; at = shown.find(',', at + 2)) shown.replace(at, 1, ", ");
        page += ".TP\n\\fB" + troff(shown) + "\\fR";
        const std::string value = option->get_positional() ? "" : value_of(*option);
        if (!value.empty()) page += " \\fI" + troff(value) + "\\fR";
        page += "\n" + troff(option->get_description());
        if (!option->get_default_str().empty()) page += fmt::format(" (default: {})", troff(option->get_default_str()));
        page += "\n";
    }
}

void add_command(const CLI::App& app, const std::string& path, std::string& page) {
    const auto commands = commands_of(app);
    page += ".SS \"" + troff(path) + "\"\n";
    if (commands.empty()) page += synopsis(app, path) + "\n.PP\n";
    page += troff(app.get_description()) + ".\n";
    add_options(app, page);
    if (!app.get_footer().empty()) {
        page += ".PP\n";
        std::string footer = troff(app.get_footer());
        for (size_t at = footer.find('\n'); at != std::string::npos && at + 1 < footer.size(); at = footer.find('\n', at + 6))
            footer.replace(at, 1, "\n.br\n");
        page += footer + "\n";
    }
    for (const CLI::App* command : commands) add_command(*command, path + " " + command->get_name(), page);
}

std::string quoted_words(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
    return "\"" + out + "\"";
}

// One case per command: what it may be followed by, and the words of its options.
void add_cases(const CLI::App& app, const std::string& path, std::string& commands, std::string& values) {
    std::vector<std::string> words;
    for (const CLI::App* command : commands_of(app)) words.push_back(command->get_name());
    bool has_model = false;
    for (const CLI::Option* option : options_of(app)) {
        has_model = has_model || (option->get_positional() && option->get_name(true) == "MODEL");
        std::string patterns;
        for (const auto& [names, dashes] : {std::pair(option->get_lnames(), "--"), std::pair(option->get_snames(), "-")}) {
            for (const std::string& name : names) {
                words.push_back(dashes + name);
                patterns += (patterns.empty() ? "" : "|") + fmt::format("\"{} {}{}\"", path, dashes, name);
            }
        }
        const auto choices = choices_of(*option);
        if (!choices.empty() && !patterns.empty())
            values += fmt::format("        {}) words={} ;;\n", patterns, quoted_words(choices));
        else if (option->get_expected_max() > 0 && !patterns.empty())
            values += fmt::format("        {}) words=@file ;;\n", patterns);
    }
    commands += fmt::format("        \"{}\") words={}; model={} ;;\n", path, quoted_words(words), has_model ? 1 : 0);
    for (const CLI::App* command : commands_of(app)) add_cases(*command, path + " " + command->get_name(), commands, values);
}

// "espalier run"|"espalier serve"|...
void collect_paths(const CLI::App& app, const std::string& path, std::string& patterns) {
    for (const CLI::App* command : commands_of(app)) {
        const std::string longer = path + " " + command->get_name();
        patterns += (patterns.empty() ? "" : "|") + fmt::format("\"{}\"", longer);
        collect_paths(*command, longer, patterns);
    }
}

}  // namespace

std::string man_page(const CLI::App& root) {
    std::string page = ".TH ESPALIER 1 \"\" \"espalier " ESPALIER_VERSION "\" \"User Commands\"\n";
    page += ".SH NAME\nespalier \\- runs Qwen3.5/3.6 models for coding agents on this machine\n";
    page += ".SH SYNOPSIS\n\\fBespalier\\fR [\\fB\\-\\-config\\fR \\fIFILE\\fR] \\fIcommand\\fR [\\fIarguments\\fR]\n";
    page += ".SH DESCRIPTION\n" + troff(root.get_description()) + "\n.PP\n";
    page += troff(
        "MODEL is the folder of a checkpoint, or a name that \"espalier models\" lists; where none is given, it is the demo "
        "model "
        "that comes with the program. Every command explains itself with --help.\n");
    add_options(root, page);
    page += ".SH COMMANDS\n";
    for (const CLI::App* command : commands_of(root)) add_command(*command, "espalier " + command->get_name(), page);
    page += ".SH ENVIRONMENT\n.TP\n\\fBESPALIER_\\fR\\fINAME\\fR\n";
    page += troff(
        "An option of the command, with underscores: ESPALIER_PORT=9000 is --port 9000. The command line wins over the "
        "environment, the environment over a --config file.\n");
    page += ".TP\n\\fBESPALIER_ISA\\fR\n" +
            troff("A lower kernel tier than the best this CPU has: scalar, avx2, avxvnni, avx512, amx.\n");
    page += ".TP\n\\fBHF_ENDPOINT\\fR, \\fBHF_TOKEN\\fR, \\fBHF_HOME\\fR, \\fBHF_HUB_CACHE\\fR, \\fBHF_HUB_OFFLINE\\fR\n" +
            troff("Where \"espalier pull\" fetches models from and keeps them, as with the Hugging Face tools.\n");
    page += ".SH FILES\n.TP\n\\fI~/.cache/huggingface/hub\\fR\nModels.\n.TP\n\\fI~/.cache/espalier/conversations\\fR\n";
    page += "Stored conversations.\n.TP\n\\fI/etc/espalier/espalier.toml\\fR\nOptions of the system service.\n";
    page += ".SH EXIT STATUS\n0 success, 1 the task failed, 2 wrong usage.\n";
    return page;
}

std::string bash_completion(const CLI::App& root) {
    std::string paths;
    std::string commands;
    std::string values;
    collect_paths(root, "espalier", paths);
    add_cases(root, "espalier", commands, values);
    std::string script = "# bash completion of espalier " ESPALIER_VERSION ", printed by: espalier completion bash\n";
    script += R"BASH(_espalier() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} path=espalier words= model=0 i
    # The longest run of words that is a command.
    for ((i = 1; i < COMP_CWORD; ++i)); do
        case "$path ${COMP_WORDS[i]}" in
)BASH";
    script += "            " + paths + ") path=\"$path ${COMP_WORDS[i]}\" ;;\n";
    script += "        esac\n    done\n    case \"$path $previous\" in\n" + values;
    script += R"BASH(    esac
    if [ "$words" = @file ]; then
        COMPREPLY=($(compgen -f -- "$word"))
        return
    fi
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
        return
    fi
    case "$path" in
)BASH";
    script += commands;
    script += R"BASH(    esac
    if [ "$model" = 1 ] && [ "${word:0:1}" != - ]; then
        COMPREPLY=($(compgen -W "$(espalier models --names 2>/dev/null)" -- "$word") $(compgen -d -- "$word"))
        return
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [ ${#COMPREPLY[@]} -ne 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}
complete -o filenames -F _espalier espalier
)BASH";
    return script;
}

}  // namespace espalier::app
