// UTF-8 one unit at a time. Outside text and token bytes may be broken anywhere; "maximal broken part" follows the Unicode
// standard (chapter 3, table 3-7 and "U+FFFD substitution of maximal subparts"), as Rust's and Python's decoders do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace espalier::text {

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
    complete,    // a whole code point
    broken,      // can never become one; n_bytes is the maximal broken part
    unfinished,  // the text ends inside a sequence that may still become one
};

struct Utf8Unit {
    Utf8Kind kind = Utf8Kind::complete;
    size_t n_bytes = 0;
};

// The unit at the start of `bytes`, which must not be empty.
Utf8Unit next_utf8(std::string_view bytes);

// The code point at `bytes`, which must start with a complete unit; `n_bytes` receives its length.
char32_t decode_utf8(const char* bytes, size_t& n_bytes);

// `code_point` must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

// The number of ASCII bytes at the start of `bytes`.
size_t ascii_prefix(std::string_view bytes);

bool is_valid_utf8(std::string_view bytes);

// Every maximal broken part, and an unfinished tail, becomes one U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace espalier::text
