// Calls written as Python source in a reply's text: "get_weather(city='Rome', days=3)". The reference scorer looks for these when
// a reply holds no structured call.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/chat_value.h"

namespace espalier::bench {

// The calls found in text: [{"name", "arguments": {…}}], an empty list when there are none. Errors: the name of the exception
// that the reference raises ("TypeError" for values that JSON cannot hold).
Result<text::ValueList> python_calls(std::string_view text);

// The keyword arguments of one call's source. Source that is not a Python argument list gives {"_raw": source}; a value that is
// an expression rather than a literal gives its source text.
Result<text::ValueDict> python_arguments(std::string_view source);

}  // namespace espalier::bench
