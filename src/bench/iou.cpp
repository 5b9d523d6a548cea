#include "bench/iou.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "text/chat_value.h"

namespace espalier::bench {
namespace {

struct Alias {
    std::string_view word;
    std::string_view action;
};

// Words that count under another name; the words of kSelfNamed count as themselves.
constexpr Alias kAliases[] = {
    {"python", "python"},
    {"python2", "python"},
    {"python3", "python"},
    {"py", "python"},
    {"pip", "pip"},
    {"pip3", "pip"},
    {"less", "cat"},
    {"more", "cat"},
    {"cat", "cat"},
    {"sphinx-build", "sphinx"},
    {"sphinx-quickstart", "sphinx"},
    {"grep", "grep"},
    {"egrep", "grep"},
    {"fgrep", "grep"},
    {"rg", "grep"},
    {"ag", "grep"},
    {"awk", "awk"},
    {"gawk", "awk"},
    {"find", "find"},
    {"locate", "find"},
    {"source", "source"},
    {".", "source"},
    {"curl", "curl"},
    {"wget", "curl"},
    {"apt", "apt"},
    {"apt-get", "apt"},
};
constexpr std::string_view kSelfNamed[] = {
    "pytest", "pylint", "cython", "make",   "conda", "head", "tail",  "wc",      "diff",  "sed",   "tr",
    "sort",   "uniq",   "cut",    "ls",     "xargs", "cp",   "mv",    "rm",      "mkdir", "touch", "tee",
    "which",  "alias",  "unset",  "export", "git",   "true", "false", "timeout", "date",  "yum",
};
constexpr std::string_view kWrappers[] = {"env", "time", "nice", "sudo", "exec", "command"};

bool is_ascii_letter(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// The length of the quoted piece that starts at text[0], or 0 when none starts there. Inside double quotes a backslash pairs with
// the next character but not with a line feed; then the whole piece does not count as quoted.
size_t quoted_length(std::string_view text) {
    const char quote = text.front();
    if (quote == '\'' || quote == '`') {
        const size_t end = text.find(quote, 1);
        return end == std::string_view::npos ? 0 : end + 1;
    }
    if (quote != '"') return 0;
    for (size_t i = 1; i < text.size(); ++i) {
        if (text[i] == '"') return i + 1;
        if (text[i] != '\\') continue;
        if (++i == text.size() || text[i] == '\n') return 0;
    }
    return 0;
}

std::string blank_quoted(std::string_view command) {
    std::string out;
    out.reserve(command.size());
    // A single quote or backtick that finds no partner once will find none later either, so that search runs only once.
    bool is_dead[256] = {};
    for (size_t i = 0; i < command.size();) {
        const auto c = static_cast<unsigned char>(command[i]);
        const size_t length = is_dead[c] ? 0 : quoted_length(command.substr(i));
        if (length > 0) {
            out += ' ';
            i += length;
            continue;
        }
        if (c == '\'' || c == '`') is_dead[c] = true;
        out += command[i++];
    }
    return out;
}

std::vector<std::string_view> split_stages(std::string_view command) {
    std::vector<std::string_view> stages;
    size_t begin = 0;
    for (size_t i = 0; i < command.size();) {
        const std::string_view rest = command.substr(i);
        size_t length = 0;
        if (rest.starts_with("||") || rest.starts_with("&&")) length = 2;
        else if (rest.front() == '|' || rest.front() == ';' || rest.front() == '\n') length = 1;
        if (length == 0) {
            ++i;
            continue;
        }
        stages.push_back(command.substr(begin, i - begin));
        i += length;
        begin = i;
    }
    stages.push_back(command.substr(begin));
    return stages;
}

// The byte length of the white space character at text[0] by Python's str.split, 0 if it is none.
size_t space_length(std::string_view text) {
    const auto c = static_cast<unsigned char>(text.front());
    if ((c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20)) return 1;
    if (text.starts_with("\xC2\x85") || text.starts_with("\xC2\xA0")) return 2;
    if (text.size() < 3) return 0;
    if (text.starts_with("\xE1\x9A\x80") || text.starts_with("\xE3\x80\x80") || text.starts_with("\xE2\x81\x9F")) return 3;
    if (!text.starts_with("\xE2\x80")) return 0;
    const auto last = static_cast<unsigned char>(text[2]);
    const bool is_space = (last >= 0x80 && last <= 0x8A) || last == 0xA8 || last == 0xA9 || last == 0xAF;
    return is_space ? 3 : 0;
}

std::vector<std::string_view> split_words(std::string_view stage) {
    std::vector<std::string_view> words;
    size_t begin = 0;
    for (size_t i = 0; i < stage.size();) {
        const size_t space = space_length(stage.substr(i));
        if (space == 0) {
            ++i;
            continue;
        }
        if (i > begin) words.push_back(stage.substr(begin, i - begin));
        i += space;
        begin = i;
    }
    if (begin < stage.size()) words.push_back(stage.substr(begin));
    return words;
}

bool is_assignment(std::string_view word) {
    if (word.empty() || (!is_ascii_letter(word.front()) && word.front() != '_')) return false;
    size_t i = 1;
    while (i < word.size() && (is_ascii_letter(word[i]) || is_digit(word[i]) || word[i] == '_')) ++i;
    return i < word.size() && word[i] == '=';
}

// Drops a trailing ".N" or ".N.N".
std::string_view strip_version(std::string_view word) {
    std::string_view stripped = word;
    for (int part = 0; part < 2; ++part) {
        size_t digits = stripped.size();
        while (digits > 0 && is_digit(stripped[digits - 1])) --digits;
        if (digits == stripped.size() || digits == 0 || stripped[digits - 1] != '.') break;
        stripped = stripped.substr(0, digits - 1);
    }
    return stripped;
}

std::string_view action_of(std::string_view word) {
    const std::string_view base = word.substr(word.rfind('/') + 1);
    std::string lowered(base);
    for (char& c : lowered) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    const std::string_view name = strip_version(lowered);
    for (const Alias& alias : kAliases) {
        if (alias.word == name) return alias.action;
    }
    for (const std::string_view self : kSelfNamed) {
        if (self == name) return self;
    }
    return {};
}

bool is_truthy(const text::Value* value) {
    if (value == nullptr || value->is_none() || value->is_undefined()) return false;
    if (const bool* b = value->as_bool()) return *b;
    if (const int64_t* i = value->as_int()) return *i != 0;
    if (const double* d = value->as_float()) return *d != 0;
    if (const std::string* s = value->as_string()) return !s->empty();
    if (const text::ValueList* l = value->as_list()) return !l->empty();
    if (const text::ValueDict* d = value->as_dict()) return !d->empty();
    return true;
}

// The command of one call's arguments, read as Python reads them.
std::optional<std::string> command_of(const Json& arguments) {
    if (!arguments.is_string() && !arguments.is_object()) return std::nullopt;
    const std::string json = arguments.is_string() ? arguments.get_ref<const std::string&>() : dump_json(arguments);
    const auto parsed = text::parse_json_value(json, "arguments");
    if (!parsed || parsed->as_dict() == nullptr) return std::nullopt;
    const text::Value* command = parsed->find("command");
    if (!is_truthy(command)) command = parsed->find("cmd");
    if (command == nullptr || command->as_string() == nullptr) return std::nullopt;
    return *command->as_string();
}

const Json* member(const Json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto it = object.find(key);
    return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace

std::vector<std::string> command_actions(std::string_view command) {
    const std::string blanked = blank_quoted(command);
    std::vector<std::string> actions;
    for (const std::string_view stage : split_stages(blanked)) {
        const std::vector<std::string_view> words = split_words(stage);
        size_t first = 0;
        while (first < words.size() &&
               (is_assignment(words[first]) || std::ranges::find(kWrappers, words[first]) != std::end(kWrappers))) {
            ++first;
        }
        if (first == words.size()) continue;
        if (const std::string_view action = action_of(words[first]); !action.empty()) actions.emplace_back(action);
    }
    return actions;
}

std::vector<std::string> bash_actions(const Json& tool_calls) {
    std::vector<std::string> actions;
    if (!tool_calls.is_array()) return actions;
    for (const Json& call : tool_calls) {
        const Json* function = member(call, "function");
        const Json* name = function != nullptr ? member(*function, "name") : nullptr;
        if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>() != "bash") continue;
        const Json* arguments = member(*function, "arguments");
        if (arguments == nullptr) continue;
        const std::optional<std::string> command = command_of(*arguments);
        if (!command) continue;
        std::ranges::move(command_actions(*command), std::back_inserter(actions));
    }
    return actions;
}

bool ToolCallMerger::add(const Json& fragment) {
    if (!fragment.is_object()) return false;
    const Json* index_member = member(fragment, "index");
    if (index_member != nullptr && !index_member->is_number_integer()) return false;
    const int64_t index = index_member != nullptr ? index_member->get<int64_t>() : 0;
    const auto at = std::ranges::lower_bound(calls_, index, {}, [](const auto& entry) { return entry.first; });
    const bool is_new = at == calls_.end() || at->first != index;
    const auto it = is_new ? calls_.insert(at, {index, Json{{"type", "function"}, {"function", {{"arguments", ""}}}}}) : at;
    Json& call = it->second;
    for (const char* key : {"id", "type"}) {
        const Json* value = member(fragment, key);
        if (value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty()) call[key] = *value;
    }
    const Json* function = member(fragment, "function");
    if (function == nullptr) return true;
    if (!function->is_object()) return false;
    const Json* name = member(*function, "name");
    if (name != nullptr && name->is_string() && !name->get_ref<const std::string&>().empty()) call["function"]["name"] = *name;
    const Json* arguments = member(*function, "arguments");
    if (arguments == nullptr) return true;
    if (!arguments->is_string()) return false;
    call["function"]["arguments"].get_ref<std::string&>() += arguments->get_ref<const std::string&>();
    return true;
}

Json ToolCallMerger::calls() const {
    Json calls = Json::array();
    for (const auto& [index, call] : calls_) calls.push_back(call);
    return calls;
}

Json merge_tool_calls(const Json& tool_calls) {
    if (!tool_calls.is_array()) return Json::array();
    const bool has_fragments = std::ranges::any_of(tool_calls, [](const Json& item) { return item.is_array(); });
    if (!has_fragments) return tool_calls;
    ToolCallMerger merger;
    for (const Json& item : tool_calls) {
        if (!item.is_array()) {
            merger.add(item);
            continue;
        }
        for (const Json& fragment : item) merger.add(fragment);
    }
    return merger.calls();
}

double multiset_iou(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    std::map<std::string_view, std::array<int, 2>> counts;
    for (const std::string& action : a) ++counts[action][0];
    for (const std::string& action : b) ++counts[action][1];
    int shared = 0;
    int all = 0;
    for (const auto& [action, count] : counts) {
        shared += std::min(count[0], count[1]);
        all += std::max(count[0], count[1]);
    }
    return all == 0 ? 0.0 : static_cast<double>(shared) / all;
}

double round_decimal(double value, int digits) {
    // printf rounds the exact binary value and breaks ties to even, as Python's round does.
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return std::strtod(text, nullptr);
}

Result<std::optional<double>> score_iou_case(const Json& line) {
    const Json* recorded = member(line, "recorded");
    if (recorded == nullptr) return invalid_input("IoU case: an object with \"recorded\" (a list of tool calls) is expected");
    const std::vector<std::string> expected = bash_actions(*recorded);
    if (expected.empty()) return std::optional<double>();
    const Json* produced = member(line, "produced");
    const Json* calls = produced != nullptr ? member(*produced, "tool_calls") : nullptr;
    const Json merged = calls != nullptr ? merge_tool_calls(*calls) : Json::array();
    return std::optional<double>(round_decimal(multiset_iou(expected, bash_actions(merged)), 4));
}

}  // namespace espalier::bench
