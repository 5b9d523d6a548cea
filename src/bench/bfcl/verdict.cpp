// Source: mlcommons/endpoints (commit ea332753), bfcl_v4_scorer.py and FunctionCallExtractor, described in own words: structured
// calls win over text; text is read as a JSON list of calls or, last, searched for calls in Python syntax.
#include "bench/bfcl/verdict.h"

#include <algorithm>

#include "bench/bfcl/checker.h"
#include "bench/bfcl/python.h"
#include "bench/bfcl/python_call.h"

namespace espalier::bench {
namespace {

using text::Value;
using text::ValueDict;
using text::ValueList;

Value call_value(Value name, Value arguments) {
    return Value(ValueDict{{"name", std::move(name)}, {"arguments", std::move(arguments)}});
}

// [{"function": {"name", "arguments"}}] -> calls; nullopt when the value is not such a list with at least one entry.
std::optional<ValueList> structured_calls(const Value& data) {
    if (data.as_list() == nullptr || data.as_list()->empty()) return std::nullopt;
    ValueList calls;
    for (const Value& item : *data.as_list()) {
        const Value* function = item.find("function");
        if (function == nullptr || function->as_dict() == nullptr) return std::nullopt;
        const Value* name = function->find("name");
        const Value* found = function->find("arguments");
        Value arguments = found != nullptr ? *found : Value("{}");
        if (arguments.as_string() != nullptr) {
            if (auto parsed = text::parse_json_value(*arguments.as_string(), "arguments")) arguments = *std::move(parsed);
        }
        calls.push_back(call_value(name != nullptr ? *name : Value(""), std::move(arguments)));
    }
    return calls;
}

// [{"name", "arguments"}] -> calls.
std::optional<ValueList> named_calls(const Value& data) {
    if (data.as_list() == nullptr || data.as_list()->empty()) return std::nullopt;
    ValueList calls;
    for (const Value& item : *data.as_list()) {
        const Value* name = item.find("name");
        if (name == nullptr) return std::nullopt;
        const Value* arguments = item.find("arguments");
        calls.push_back(call_value(*name, arguments != nullptr ? *arguments : Value(ValueDict())));
    }
    return calls;
}

Result<ValueList> extract_calls(std::string_view output) {
    const std::string_view text = py_strip(output);
    if (text.empty()) return ValueList();
    if (const auto data = text::parse_json_value(text, "reply")) {
        if (auto calls = structured_calls(*data)) return *std::move(calls);
        if (auto calls = named_calls(*data)) return *std::move(calls);
    }
    return python_calls(text);
}

// The calls in the checker's form; arguments that are still text are read once more, and count as {} when that fails.
std::vector<Call> checker_calls(const ValueList& extracted) {
    std::vector<Call> calls;
    for (const Value& entry : extracted) {
        Call call{*entry.find("name"), *entry.find("arguments")};
        if (const std::string* text = call.arguments.as_string()) {
            auto parsed = text::parse_json_value(*text, "arguments");
            call.arguments = parsed ? *std::move(parsed) : Value(ValueDict());
        }
        calls.push_back(std::move(call));
    }
    return calls;
}

BfclVerdict raised(const Error& error, BfclVerdict verdict) {
    verdict.score.reset();
    verdict.error_type = "exception:" + error.message;
    return verdict;
}

Language language_of(std::string_view subset) {
    if (subset == "simple_java") return Language::java;
    return subset == "simple_javascript" ? Language::javascript : Language::python;
}

}  // namespace

bool is_hallucination_subset(std::string_view subset) {
    return subset == "irrelevance" || subset == "live_irrelevance";
}

BfclReply bfcl_reply(const Json& content, const Json& tool_calls) {
    BfclReply reply;
    if (content.is_string()) reply.content = content.get<std::string>();
    if (tool_calls.is_array() && !tool_calls.empty()) reply.tool_calls = dump_json(tool_calls);
    return reply;
}

BfclVerdict bfcl_verdict(const BfclTruth& truth, const BfclReply& reply) {
    const std::string& output = reply.tool_calls.empty() ? reply.content : reply.tool_calls;
    BfclVerdict verdict;
    if (is_hallucination_subset(truth.subset)) {
        const auto data = text::parse_json_value(output, "reply");
        const bool has_call = data && structured_calls(*data);
        verdict.score = has_call ? 0.0 : 1.0;
        if (has_call) verdict.error_type = "hallucination:structured_call";
        return verdict;
    }
    Result<ValueList> extracted = extract_calls(output);
    if (!extracted) return raised(extracted.error(), std::move(verdict));
    verdict.extracted = *std::move(extracted);
    if (!py_truthy(truth.answer)) {
        verdict.score = verdict.extracted.empty() ? 1.0 : 0.0;
        if (!verdict.extracted.empty()) verdict.error_type = "no_call_expected";
        return verdict;
    }
    const CheckInput input{&truth.functions, &truth.answer, language_of(truth.subset), truth.subset};
    Result<Check> check = check_calls(input, checker_calls(verdict.extracted));
    if (!check) return raised(check.error(), std::move(verdict));
    verdict.score = check->is_valid ? 1.0 : 0.0;
    verdict.error_type = check->error_type;
    verdict.detail = check->detail;
    verdict.sub_errors = std::move(check->sub_errors);
    return verdict;
}

}  // namespace espalier::bench
