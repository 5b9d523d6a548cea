// Python's view of text on UTF-8 bytes: code points, white space, letter case, printability. Bytes that are not UTF-8 count as
// one U+FFFD each, so that every function is total.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::text::jinja {

struct CodePoint {
    char32_t value = 0;
    size_t bytes = 1;
};

// The code point that begins at byte i; i must be inside the text.
CodePoint decode_at(std::string_view text, size_t i);
// The code point that ends before byte i; i must be positive.
CodePoint decode_before(std::string_view text, size_t i);
void append_utf8(std::string& out, char32_t code_point);
bool is_valid_utf8(std::string_view text);

size_t count_code_points(std::string_view text);
// The byte at which code point number n begins; the length of the text if it has fewer.
size_t byte_offset(std::string_view text, size_t n);
std::vector<std::string_view> split_code_points(std::string_view text);

// str.isspace of one character: Unicode white space and U+001C..U+001F.
bool is_space(char32_t code_point);
bool is_line_break(char32_t code_point);  // where str.splitlines cuts
bool is_printable(char32_t code_point);   // str.isprintable
bool is_letter(char32_t code_point);
bool is_decimal_digit(char32_t code_point);
bool is_upper(char32_t code_point);
bool is_lower(char32_t code_point);
bool is_title(char32_t code_point);

// Full case mapping, as str.upper, str.lower, str.capitalize, str.title, str.swapcase.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string to_title(std::string_view text);
std::string swap_case(std::string_view text);

// At least the number of white space characters and line breaks: bytes that are one or may begin one.
size_t count_space_bytes(std::string_view text);

// str.strip and its halves. characters: the set to remove; nullptr means white space.
enum class Side { both, left, right };
std::string_view strip(std::string_view text, const std::string_view* characters, Side side);
// str.splitlines(); with keep_ends the line breaks stay.
enum class LineEnds { drop, keep };
std::vector<std::string_view> split_lines(std::string_view text, LineEnds ends);

}  // namespace espalier::text::jinja
