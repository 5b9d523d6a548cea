// Java and JavaScript argument values: source text -> value, by the declared type.
//
// Source: bfcl-eval 2026.3.23 (Apache-2.0), eval_checker/ast_eval/type_convertor. Text that does not have the form of its type
// stays a string.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "bench/bfcl/python.h"

namespace espalier::bench {

// Errors: the name of the Python exception that the reference raises.
Result<text::Value> java_value(const std::string& source, std::string_view type, const std::optional<std::string>& item_type);
Result<text::Value> js_value(const std::string& source, std::string_view type, const std::optional<std::string>& item_type);

}  // namespace espalier::bench
