// The output parser's alphabet. The machine reads one string in which a real marker token is a single byte that cannot occur
// in UTF-8, so "is this a marker or its spelling?" is answered once, at the door, and every later comparison is of bytes.
#pragma once

#include <string>
#include <string_view>

#include "text/tool_format.h"

namespace espalier::text {

inline constexpr char kCallOpen = '\xF8';
inline constexpr char kCallClose = '\xF9';
inline constexpr char kThinkOpen = '\xFA';
inline constexpr char kThinkClose = '\xFB';

inline bool is_marker_symbol(char c) {
    return static_cast<unsigned char>(c) >= 0xF8;
}
inline bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// The first position at or after `pos` that is no white space.
size_t skip_space(std::string_view text, size_t pos);
// Without white space at both ends.
std::string_view trim_space(std::string_view text);

// The text of a marker symbol. Views into the format.
std::string_view marker_text(const ToolFormat& format, char symbol);

// Turns pushed pieces into symbols: real markers become one byte, other text is made valid UTF-8 (an unfinished tail waits for
// the next piece, broken parts become U+FFFD).
class SymbolGate {
public:
    // The format must outlive the gate.
    explicit SymbolGate(const ToolFormat& format) : format_(&format) {}

    void push(std::string_view text, bool is_marker, std::string& symbols);
    // The output ended: an unfinished tail becomes U+FFFD.
    void flush(std::string& symbols);

private:
    const ToolFormat* format_;
    std::string tail_;  // at most 3 bytes
};

}  // namespace espalier::text
