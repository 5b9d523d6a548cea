// How Python writes values as text: repr of floats and strings, JSON strings, and the reading of numbers.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text::jinja {

// repr(float): the shortest digits that read back, "1.0", "1e-07", "1e+16", "inf", "nan".
std::string float_repr(double value);
// A decimal number as Python reads it: out of range gives infinity or zero. The text must be a number's spelling.
double parse_float(std::string_view text);

// repr(str): quotes chosen as Python does, unprintable characters escaped.
void append_string_repr(std::string& out, std::string_view text);

enum class JsonAscii { keep, escape };
// A JSON string with its quotes, as json.dumps writes it.
void append_json_string(std::string& out, std::string_view text, JsonAscii ascii = JsonAscii::keep);
// A JSON float: repr, but NaN, Infinity and -Infinity.
std::string json_float(double value);

}  // namespace espalier::text::jinja
