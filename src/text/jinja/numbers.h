// Text to numbers as Python's int() and float() read it.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/object.h"

namespace espalier::text::jinja {

// nullopt where Python raises ValueError. base 0 means the prefix decides.
std::optional<Val> parse_python_int(std::string_view text, int64_t base);
std::optional<double> parse_python_float(std::string_view text);

}  // namespace espalier::text::jinja
