#include "probe/toolcalls_command.h"

#include <fmt/format.h>

#include <charconv>
#include <istream>
#include <ostream>
#include <random>
#include <vector>

#include "base/json.h"
#include "text/chat_value.h"
#include "text/marker_scanner.h"
#include "text/output_parser.h"

namespace espalier::probe {
namespace {

using text::Value;

struct RecordedOutput {
    std::string id = "null";  // as JSON
    std::string text;
    std::vector<Value> tools;
    text::PromptState state = text::PromptState::no_think;
    text::StopCause cause = text::StopCause::eos;
};

// The string member, `fallback` if it is absent or null.
Result<std::string> string_member(const Value& line, std::string_view key, std::string_view fallback) {
    const Value* member = line.find(key);
    if (member == nullptr || member->is_none()) return std::string(fallback);
    if (member->as_string() == nullptr) return invalid_input(fmt::format("\"{}\" must be a string", key));
    return *member->as_string();
}

Result<RecordedOutput> read_line(const std::string& json) {
    TRY_ASSIGN(const Value line, text::parse_json_value(json, "case"));
    if (line.as_dict() == nullptr) return invalid_input("expected a JSON object");
    RecordedOutput recorded;
    if (const Value* id = line.find("id")) {
        TRY_ASSIGN(recorded.id, text::to_json_text(*id));
    }
    if (line.find("model_output") == nullptr) return invalid_input("\"model_output\" is missing");
    TRY_ASSIGN(recorded.text, string_member(line, "model_output", ""));
    TRY_ASSIGN(const std::string state, string_member(line, "prompt_state", "no_think"));
    TRY_ASSIGN(const std::string cause, string_member(line, "stop_cause", "eos"));
    if (state != "no_think" && state != "think_open") {
        return invalid_input(fmt::format("\"prompt_state\" is \"{}\", expected \"no_think\" or \"think_open\"", state));
    }
    if (cause != "eos" && cause != "length") {
        return invalid_input(fmt::format("\"stop_cause\" is \"{}\", expected \"eos\" or \"length\"", cause));
    }
    recorded.state = state == "think_open" ? text::PromptState::think_open : text::PromptState::no_think;
    recorded.cause = cause == "length" ? text::StopCause::length : text::StopCause::eos;
    const Value* choice = line.find("tool_choice");
    const bool has_no_tools = choice != nullptr && choice->as_string() != nullptr && *choice->as_string() == "none";
    const Value* tools = line.find("tools");
    if (tools != nullptr && !tools->is_none() && tools->as_list() == nullptr) return invalid_input("\"tools\" must be an array");
    if (tools != nullptr && tools->as_list() != nullptr && !has_no_tools) recorded.tools = *tools->as_list();
    return recorded;
}

std::string json_string(const std::string& text) {
    return dump_json(Json(text));
}

// Arguments are copied as text, so that no digit changes on the way out.
std::string to_line(const RecordedOutput& recorded, const text::ParsedOutput& parsed) {
    const auto text_or_null = [](const std::string& text) { return text.empty() ? std::string("null") : json_string(text); };
    std::string calls;
    for (const text::ParsedCall& call : parsed.calls) {
        const bool is_object = call.is_complete && call.arguments.starts_with('{');
        calls += fmt::format("{}{{\"name\": {}, {}: {}}}", calls.empty() ? "" : ", ", json_string(call.name),
                             is_object ? "\"arguments\"" : "\"arguments_raw\"",
                             is_object ? call.arguments : json_string(call.arguments));
    }
    return fmt::format("{{\"id\": {}, \"content\": {}, \"tool_calls\": [{}], \"reasoning\": {}, \"finish_reason\": {}}}",
                       recorded.id, text_or_null(parsed.content), calls, text_or_null(parsed.reasoning),
                       json_string(parsed.finish_reason));
}

// `cuts`: ascending positions in the text.
std::string parse_cut(const text::ToolFormat& format, const RecordedOutput& recorded, const std::vector<size_t>& cuts) {
    text::OutputParser parser(format, recorded.tools, recorded.state);
    text::MarkerScanner scanner(format);
    std::vector<text::MarkedRun> runs;
    std::vector<text::OutputDelta> deltas;
    const auto push = [&](size_t begin, size_t end) {
        scanner.push(std::string_view(recorded.text).substr(begin, end - begin), runs);
        if (end == recorded.text.size()) scanner.flush(runs);
        for (const text::MarkedRun& run : runs) parser.push(run.text, run.is_marker, deltas);
        runs.clear();
        deltas.clear();
    };
    size_t begin = 0;
    for (const size_t cut : cuts) {
        push(begin, cut);
        begin = cut;
    }
    push(begin, recorded.text.size());
    parser.finish(recorded.cause, deltas);
    return to_line(recorded, parser.parsed());
}

Result<std::string> parse_halves(const text::ToolFormat& format, const RecordedOutput& recorded) {
    const std::string whole = parse_cut(format, recorded, {});
    for (size_t cut = 1; cut < recorded.text.size(); ++cut) {
        const std::string line = parse_cut(format, recorded, {cut});
        if (line != whole)
            return internal_error(fmt::format("case {}: cut at byte {} gives {}, whole gives {}", recorded.id, cut, line, whole));
    }
    return whole;
}

// The cuts of the other splits; `random` is null for "whole" and "bytes".
std::vector<size_t> cuts_of(size_t n_bytes, std::string_view split, std::mt19937_64* random) {
    std::vector<size_t> cuts;
    if (split == "whole") return cuts;
    for (size_t at = 0;;) {
        at += random == nullptr ? 1 : 1 + (*random)() % 12;
        if (at >= n_bytes) return cuts;
        cuts.push_back(at);
    }
}

// The seed of "seed:N".
Result<uint64_t> parse_seed(std::string_view split) {
    constexpr std::string_view kPrefix = "seed:";
    uint64_t seed = 0;
    const std::string_view digits = split.starts_with(kPrefix) ? split.substr(kPrefix.size()) : std::string_view();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
        return invalid_input(fmt::format("split \"{}\" is unknown, expected whole, bytes, halves or seed:N", split));
    }
    return seed;
}

}  // namespace

Status run_toolcalls(const ToolcallsOptions& options, std::istream& in, std::ostream& out) {
    const text::ToolFormat* format = text::find_tool_format(options.format);
    if (format == nullptr) {
        std::string known;
        for (const text::ToolFormat& one : text::tool_formats())
            known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
        return invalid_input(fmt::format("tool format \"{}\" is unknown, expected one of {}", options.format, known));
    }
    const std::string& split = options.split;
    const bool is_random = split != "whole" && split != "bytes" && split != "halves";
    std::mt19937_64 random;
    if (is_random) {
        TRY_ASSIGN(const uint64_t seed, parse_seed(split));
        random.seed(seed);
    }
    std::string json;
    for (int64_t number = 1; std::getline(in, json); ++number) {
        if (json.find_first_not_of(" \t\r") == std::string::npos) continue;
        const auto recorded = read_line(json);
        if (!recorded) return invalid_input(fmt::format("line {}: {}", number, recorded.error().message));
        std::string line;
        if (split == "halves") {
            TRY_ASSIGN(line, parse_halves(*format, *recorded));
        } else {
            line = parse_cut(*format, *recorded, cuts_of(recorded->text.size(), split, is_random ? &random : nullptr));
        }
        out << line << '\n' << std::flush;
    }
    return {};
}

}  // namespace espalier::probe
