#include "text/jinja/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "text/jinja/unicode.h"
#include "text/json_escape.h"

namespace espalier::text::jinja {
namespace {

// Decimal exponents outside this range are written in scientific notation by repr.
constexpr int kFixedExponentMin = -4;
constexpr int kFixedExponentMax = 16;

// A number that from_chars calls out of range is huge or tiny; the position of its first digit that is not zero tells which.
bool is_huge(std::string_view text) {
    long exponent = 0;
    const size_t e = text.find_first_of("eE");
    if (e != std::string_view::npos) exponent = std::strtol(std::string(text.substr(e + 1)).c_str(), nullptr, 10);
    const std::string_view mantissa = text.substr(0, e);
    const size_t point = std::min(mantissa.find('.'), mantissa.size());
    const size_t first = mantissa.find_first_of("123456789");
    if (first == std::string_view::npos) return false;
    const auto position = static_cast<long>(point) - static_cast<long>(first);
    constexpr long kExponentClamp = 1'000'000'000;
    return std::clamp(exponent, -kExponentClamp, kExponentClamp) + position > 0;
}

}  // namespace

std::string float_repr(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
    const std::string_view text(buffer, static_cast<size_t>(end - buffer));
    const size_t e = text.find('e');
    const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
    std::string sign;
    std::string digits;
    for (const char c : text.substr(0, e)) {
        if (c == '-') sign = "-";
        else if (c != '.') digits += c;
    }
    if (exponent < kFixedExponentMin || exponent >= kFixedExponentMax) {
        if (digits.size() > 1) digits.insert(1, ".");
        return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
    }
    if (exponent < 0) return fmt::format("{}0.{:0>{}}{}", sign, "", -exponent - 1, digits);
    const auto point = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= point) return fmt::format("{}{:0<{}}.0", sign, digits, point);
    digits.insert(point, ".");
    return sign + digits;
}

double parse_float(std::string_view text) {
    const bool negative = !text.empty() && text[0] == '-';
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc::result_out_of_range) {
        value = is_huge(text) ? std::numeric_limits<double>::infinity() : 0.0;
    }
    return negative ? -value : value;
}

void append_string_repr(std::string& out, std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const bool has_double = text.find('"') != std::string_view::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    out += quote;
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        if (c.value == static_cast<unsigned char>(quote) || c.value == '\\') {
            out += '\\';
            out += static_cast<char>(c.value);
        } else if (c.value == '\n') {
            out += "\\n";
        } else if (c.value == '\r') {
            out += "\\r";
        } else if (c.value == '\t') {
            out += "\\t";
        } else if (is_printable(c.value)) {
            out += text.substr(i, c.bytes);
        } else if (c.value < 0x100) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned>(c.value));
        } else if (c.value < 0x10000) {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c.value));
        } else {
            out += fmt::format("\\U{:08x}", static_cast<unsigned>(c.value));
        }
        i += c.bytes;
    }
    out += quote;
}

void append_json_string(std::string& out, std::string_view text, JsonAscii ascii) {
    out += '"';
    for (size_t i = 0; i < text.size();) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte >= 0x80) {
            const CodePoint c = decode_at(text, i);
            if (ascii == JsonAscii::keep) {
                append_utf8(out, c.value);
            } else if (c.value < 0x10000) {
                out += fmt::format("\\u{:04x}", static_cast<unsigned>(c.value));
            } else {
                const auto rest = static_cast<unsigned>(c.value) - 0x10000U;
                out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800U + (rest >> 10U), 0xDC00U + (rest & 0x3FFU));
            }
            i += c.bytes;
            continue;
        }
        if (byte == 0x7F && ascii == JsonAscii::escape) out += "\\u007f";
        else append_json_escaped(out, text.substr(i, 1));
        ++i;
    }
    out += '"';
}

std::string json_float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
}

}  // namespace espalier::text::jinja
