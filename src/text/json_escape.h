// The one place that escapes text for JSON.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text {

// Appends text as the inside of a JSON string: quote, backslash and control characters escaped, UTF-8 as it is.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace espalier::text
