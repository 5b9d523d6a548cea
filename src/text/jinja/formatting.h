// Text formatting: the % operator (and the format filter), str.format with simple fields, and padding.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/object.h"
#include "text/jinja/runtime.h"

namespace espalier::text::jinja {

// format % values, where values is a tuple, a mapping for %(name)s, or one value.
[[nodiscard]] bool format_percent(Runtime& rt, const Val& format, const Val& values, Val& out);

// format.format(*args, **named): fields {}, {0}, {name}, each with .attr-free keys [k], !r or !s, and a format
// specification of fill, alignment, sign, width, comma, precision and type.
[[nodiscard]] bool format_braces(Runtime& rt, std::string_view format, const CallArgs& args, Val& out);

enum class Align { left, right, center, after_sign };
// Pads to a width in code points. Center: the odd character goes as str.center puts it.
std::string pad(std::string_view text, size_t width, Align align, std::string_view fill);

}  // namespace espalier::text::jinja
