#include "probe/bfcl_command.h"

#include <fmt/format.h>

#include <istream>
#include <map>
#include <ostream>
#include <sstream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "bench/bfcl/python.h"
#include "bench/bfcl/verdict.h"

namespace espalier::probe {
namespace {

using bench::BfclReply;
using bench::BfclTruth;
using bench::BfclVerdict;
using text::Value;

constexpr size_t kOriginalsBytesMax = size_t{1} << 30;

bool is_blank(const std::string& line) {
    return line.find_first_not_of(" \t\r") == std::string::npos;
}

const std::string* text_member(const Value& line, const char* key) {
    const Value* value = line.find(key);
    return value != nullptr ? value->as_string() : nullptr;
}

Result<std::map<std::string, BfclTruth>> read_originals(const std::string& path) {
    TRY_ASSIGN(const std::string text, read_file(path, kOriginalsBytesMax));
    std::map<std::string, BfclTruth> truths;
    std::istringstream lines(text);
    std::string line;
    for (int64_t number = 1; std::getline(lines, line); ++number) {
        if (is_blank(line)) continue;
        TRY_ASSIGN(const Value value, text::parse_json_value(line, fmt::format("{} line {}", path, number)));
        const std::string* id = text_member(value, "id");
        const std::string* subset = text_member(value, "subset");
        const Value* functions = value.find("functions");
        const Value* answer = value.find("ground_truth");
        if (id == nullptr || subset == nullptr || functions == nullptr || answer == nullptr) {
            return invalid_input(
                fmt::format("{} line {}: \"id\", \"subset\", \"functions\" and \"ground_truth\" are expected", path, number));
        }
        truths[*id] = {*subset, *functions, *answer};
    }
    return truths;
}

Result<BfclReply> read_reply(const Value& line) {
    BfclReply reply;
    if (const std::string* content = text_member(line, "content")) reply.content = *content;
    const Value* calls = line.find("tool_calls");
    if (calls == nullptr || !bench::py_truthy(*calls)) return reply;
    TRY_ASSIGN(reply.tool_calls, text::to_json_text(*calls));
    return reply;
}

}  // namespace

Status run_bfcl_verdicts(const std::string& originals_path, std::istream& in, std::ostream& out) {
    TRY_ASSIGN(const auto truths, read_originals(originals_path));
    std::string text;
    for (int64_t number = 1; std::getline(in, text); ++number) {
        if (is_blank(text)) continue;
        TRY_ASSIGN(const Value line, text::parse_json_value(text, fmt::format("line {}", number)));
        const std::string* original = text_member(line, "original");
        const auto truth = original != nullptr ? truths.find(*original) : truths.end();
        if (truth == truths.end()) {
            return invalid_input(fmt::format("line {}: \"original\" names no sample of {}", number, originals_path));
        }
        TRY_ASSIGN(const BfclReply reply, read_reply(line));
        const BfclVerdict verdict = bench::bfcl_verdict(truth->second, reply);
        const std::string* id = text_member(line, "id");
        const Json result{{"id", id != nullptr ? Json(*id) : Json()},
                          {"score", verdict.score ? Json(*verdict.score) : Json()},
                          {"error_type", verdict.error_type.empty() ? Json() : Json(verdict.error_type)}};
        out << dump_json(result) << '\n' << std::flush;
    }
    return {};
}

}  // namespace espalier::probe
