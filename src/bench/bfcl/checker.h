// The AST checker of BFCL v4: does a list of calls fit an answer with accepted values?
//
// Source: bfcl-eval 2026.3.23 (Apache-2.0), eval_checker/ast_eval/ast_checker.py, with the model entry that the MLPerf harness
// uses (dots in declared names become underscores). Rules and their order are kept exactly, oddities included.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_value.h"

namespace espalier::bench {

enum class Language { python, java, javascript };

struct Call {
    text::Value name;  // any JSON value: a model may send anything
    text::Value arguments;
};

struct Check {
    bool is_valid = true;
    std::string error_type;  // "" when valid
    std::string detail;      // for people: which parameter or call
    std::vector<std::string>
        sub_errors;  // of a parallel check: the error types of the calls tried for the answer without a match
};

struct CheckInput {
    const text::Value* functions;  // list of {"name", "parameters": {"properties", "required"}} with BFCL's type names
    const text::Value* answer;     // list of {function: {parameter: [accepted values]}}
    Language language = Language::python;
    std::string_view category;  // subset name: "parallel" and "multiple" in it choose the rules
};

// Errors: the name of the Python exception that the reference raises on such output or data ("TypeError", "KeyError", …).
Result<Check> check_calls(const CheckInput& input, const std::vector<Call>& calls);

}  // namespace espalier::bench
