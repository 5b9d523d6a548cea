// Python's view of JSON values, as far as scoring depends on it: exact types, equality across number types, int() and float().
//
// The reference scorer is Python code that can raise on odd model output; such a raise is an Error here, whose message is the
// name of Python's exception ("TypeError").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_value.h"

namespace espalier::bench {

enum class PyType { none, boolean, integer, real, string, list, dict };
PyType py_type(const text::Value& value);

// a == b. Numbers compare by value whatever their type, dictionaries without order.
bool py_equal(const text::Value& a, const text::Value& b);

// bool(value).
bool py_truthy(const text::Value& value);

// `item in container`: list element, dictionary key, substring. TypeError for other containers.
Result<bool> py_in(const text::Value& item, const text::Value& container);

// list(value): elements, the characters of a string, the keys of a dictionary. TypeError for other values.
Result<std::vector<text::Value>> py_list(const text::Value& value);

// value[key] of a dictionary, value["x"] of anything else. KeyError, TypeError.
Result<text::Value> py_item(const text::Value& value, std::string_view key);

// int(text), float(text); nullopt where Python raises ValueError.
std::optional<text::Value> py_int(std::string_view text);
std::optional<double> py_float(std::string_view text);

// text[1:-1], in characters.
std::string py_inner(std::string_view text);
// text.strip().
std::string_view py_strip(std::string_view text);

Error py_raise(std::string_view exception);

}  // namespace espalier::bench
