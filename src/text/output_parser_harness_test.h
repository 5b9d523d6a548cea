// Runs the output parser over case files: one JSON object per line, as tests/golden/text/toolcalls.md describes them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/chat_value.h"
#include "text/marker_scanner.h"
#include "text/output_parser.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text {

struct ParserCase {
    std::string id;
    std::string output;
    std::string format = "qwen-xml";
    std::vector<Value> tools;
    PromptState state = PromptState::no_think;
    StopCause cause = StopCause::eos;
    Json expected;
    Json repairs;  // optional: kinds that must have been counted
};

struct ParserRun {
    ParsedOutput parsed;
    std::vector<std::vector<OutputDelta>> pushes;
    std::map<std::string, int> repairs;
    ByteAccount bytes;
};

inline std::vector<Value> tools_from_json(const std::string& json) {
    const auto value = parse_json_value(json, "tools");
    EXPECT_TRUE(value) << json;
    return value && value->as_list() != nullptr ? *value->as_list() : std::vector<Value>();
}

inline std::vector<ParserCase> load_cases(const std::string& path) {
    std::ifstream file(std::string(ESPALIER_SOURCE_DIR) + "/" + path);
    EXPECT_TRUE(file) << path;
    std::vector<ParserCase> cases;
    for (std::string line; std::getline(file, line);) {
        if (line.empty()) continue;
        const auto json = parse_json(line, path);
        if (!json) {
            ADD_FAILURE() << json.error().message;
            continue;
        }
        ParserCase one;
        one.id = json->at("id");
        one.output = json->at("model_output");
        one.format = json->value("format", "qwen-xml");
        if (json->value("tool_choice", "auto") != "none") one.tools = tools_from_json(json->at("tools").dump());
        one.state = json->value("prompt_state", "no_think") == "think_open" ? PromptState::think_open : PromptState::no_think;
        one.cause = json->value("stop_cause", "eos") == "length" ? StopCause::length : StopCause::eos;
        one.expected = json->at("expected");
        one.repairs = json->value("repairs", Json::array());
        cases.push_back(std::move(one));
    }
    EXPECT_FALSE(cases.empty()) << path;
    return cases;
}

// `cuts`: ascending positions at which the text is cut, before markers are looked for.
inline ParserRun run_parser(const ParserCase& one, const std::vector<size_t>& cuts = {}) {
    const ToolFormat* format = find_tool_format(one.format);
    EXPECT_NE(format, nullptr) << one.format;
    OutputParser parser(*format, one.tools, one.state);
    MarkerScanner scanner(*format);
    ParserRun run;
    std::vector<MarkedRun> runs;
    const auto push_runs = [&] {
        for (const MarkedRun& piece : runs) {
            run.pushes.emplace_back();
            parser.push(piece.text, piece.is_marker, run.pushes.back());
        }
        runs.clear();
    };
    size_t begin = 0;
    for (const size_t cut : cuts) {
        scanner.push(std::string_view(one.output).substr(begin, cut - begin), runs);
        push_runs();
        begin = cut;
    }
    scanner.push(std::string_view(one.output).substr(begin), runs);
    scanner.flush(runs);
    push_runs();
    run.pushes.emplace_back();
    parser.finish(one.cause, run.pushes.back());
    run.parsed = parser.parsed();
    run.repairs = parser.repairs();
    run.bytes = parser.bytes();
    return run;
}

inline std::vector<size_t> every_byte(size_t n_bytes) {
    std::vector<size_t> cuts;
    for (size_t i = 1; i < n_bytes; ++i) cuts.push_back(i);
    return cuts;
}

inline std::vector<size_t> random_cuts(size_t n_bytes, std::mt19937& random) {
    std::vector<size_t> cuts;
    for (size_t at = 0;;) {
        at += 1 + random() % 12;
        if (at >= n_bytes) return cuts;
        cuts.push_back(at);
    }
}

// One comparable text of everything a run gave.
inline std::string describe(const ParserRun& run) {
    std::string out =
        "content: " + run.parsed.content + "\nreasoning: " + run.parsed.reasoning + "\nfinish: " + run.parsed.finish_reason;
    for (const ParsedCall& call : run.parsed.calls) {
        out += "\ncall: " + call.name + " " + call.arguments + (call.is_complete ? "" : " (unfinished)");
    }
    for (const auto& [kind, count] : run.repairs) out += "\nrepair: " + kind + " " + std::to_string(count);
    return out;
}

// What must hold for any output: the pieces joined are the answer, no piece is empty or broken UTF-8, calls come in order, every
// input byte is accounted for, and finished arguments are JSON.
inline void check_run(const ParserRun& run, const std::string& what) {
    ParsedOutput joined;
    for (const auto& deltas : run.pushes) {
        for (const OutputDelta& delta : deltas) {
            using Kind = OutputDelta::Kind;
            const bool is_text =
                delta.kind == Kind::content || delta.kind == Kind::reasoning || delta.kind == Kind::call_arguments;
            EXPECT_EQ(is_text, !delta.text.empty()) << what;
            EXPECT_TRUE(is_valid_utf8(delta.text)) << what << ": " << delta.text;
            if (delta.kind == Kind::content) joined.content += delta.text;
            if (delta.kind == Kind::reasoning) joined.reasoning += delta.text;
            if (delta.kind == Kind::call_begin) {
                EXPECT_EQ(delta.call_index, static_cast<int>(joined.calls.size())) << what;
                EXPECT_FALSE(delta.call_name.empty()) << what;
                joined.calls.push_back({delta.call_name, "", false});
            }
            if (delta.kind == Kind::call_arguments || delta.kind == Kind::call_end) {
                ASSERT_EQ(delta.call_index + 1, static_cast<int>(joined.calls.size())) << what;
                joined.calls.back().arguments += delta.text;
                joined.calls.back().is_complete = delta.kind == Kind::call_end;
            }
        }
    }
    EXPECT_EQ(joined.content, run.parsed.content) << what;
    EXPECT_EQ(joined.reasoning, run.parsed.reasoning) << what;
    ASSERT_EQ(joined.calls.size(), run.parsed.calls.size()) << what;
    for (size_t i = 0; i < joined.calls.size(); ++i) {
        const ParsedCall& call = run.parsed.calls[i];
        EXPECT_EQ(joined.calls[i].name, call.name) << what;
        EXPECT_EQ(joined.calls[i].arguments, call.arguments) << what;
        EXPECT_EQ(joined.calls[i].is_complete, call.is_complete) << what;
        EXPECT_FALSE(call.arguments.empty()) << what;
        EXPECT_EQ(Json::accept(call.arguments), call.is_complete) << what << ": " << call.arguments;
    }
    const ByteAccount& bytes = run.bytes;
    EXPECT_EQ(bytes.input, bytes.content + bytes.reasoning + bytes.arguments + bytes.framing + bytes.repaired) << what;
}

}  // namespace espalier::text
