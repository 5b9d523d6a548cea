// Case mapping: utf8proc gives the one-to-one mappings; the characters whose upper case is longer are in the table below
// (Unicode 15, SpecialCasing.txt, unconditional mappings). The final sigma is the only context that str.lower looks at.
#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace espalier::text::jinja {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Expansion {
    char32_t from;
    std::u32string_view upper;
};

// clang-format off
constexpr std::array kExpansions = std::to_array<Expansion>({
    {0x00DF, U"SS"}, {0x0149, U"\u02BCN"}, {0x01F0, U"J\u030C"}, {0x0390, U"\u0399\u0308\u0301"},
    {0x03B0, U"\u03A5\u0308\u0301"}, {0x0587, U"\u0535\u0552"}, {0x1E96, U"H\u0331"}, {0x1E97, U"T\u0308"},
    {0x1E98, U"W\u030A"}, {0x1E99, U"Y\u030A"}, {0x1E9A, U"A\u02BE"}, {0x1F50, U"\u03A5\u0313"},
    {0x1F52, U"\u03A5\u0313\u0300"}, {0x1F54, U"\u03A5\u0313\u0301"}, {0x1F56, U"\u03A5\u0313\u0342"}, {0x1F80, U"\u1F08\u0399"},
    {0x1F81, U"\u1F09\u0399"}, {0x1F82, U"\u1F0A\u0399"}, {0x1F83, U"\u1F0B\u0399"}, {0x1F84, U"\u1F0C\u0399"},
    {0x1F85, U"\u1F0D\u0399"}, {0x1F86, U"\u1F0E\u0399"}, {0x1F87, U"\u1F0F\u0399"}, {0x1F88, U"\u1F08\u0399"},
    {0x1F89, U"\u1F09\u0399"}, {0x1F8A, U"\u1F0A\u0399"}, {0x1F8B, U"\u1F0B\u0399"}, {0x1F8C, U"\u1F0C\u0399"},
    {0x1F8D, U"\u1F0D\u0399"}, {0x1F8E, U"\u1F0E\u0399"}, {0x1F8F, U"\u1F0F\u0399"}, {0x1F90, U"\u1F28\u0399"},
    {0x1F91, U"\u1F29\u0399"}, {0x1F92, U"\u1F2A\u0399"}, {0x1F93, U"\u1F2B\u0399"}, {0x1F94, U"\u1F2C\u0399"},
    {0x1F95, U"\u1F2D\u0399"}, {0x1F96, U"\u1F2E\u0399"}, {0x1F97, U"\u1F2F\u0399"}, {0x1F98, U"\u1F28\u0399"},
    {0x1F99, U"\u1F29\u0399"}, {0x1F9A, U"\u1F2A\u0399"}, {0x1F9B, U"\u1F2B\u0399"}, {0x1F9C, U"\u1F2C\u0399"},
    {0x1F9D, U"\u1F2D\u0399"}, {0x1F9E, U"\u1F2E\u0399"}, {0x1F9F, U"\u1F2F\u0399"}, {0x1FA0, U"\u1F68\u0399"},
    {0x1FA1, U"\u1F69\u0399"}, {0x1FA2, U"\u1F6A\u0399"}, {0x1FA3, U"\u1F6B\u0399"}, {0x1FA4, U"\u1F6C\u0399"},
    {0x1FA5, U"\u1F6D\u0399"}, {0x1FA6, U"\u1F6E\u0399"}, {0x1FA7, U"\u1F6F\u0399"}, {0x1FA8, U"\u1F68\u0399"},
    {0x1FA9, U"\u1F69\u0399"}, {0x1FAA, U"\u1F6A\u0399"}, {0x1FAB, U"\u1F6B\u0399"}, {0x1FAC, U"\u1F6C\u0399"},
    {0x1FAD, U"\u1F6D\u0399"}, {0x1FAE, U"\u1F6E\u0399"}, {0x1FAF, U"\u1F6F\u0399"}, {0x1FB2, U"\u1FBA\u0399"},
    {0x1FB3, U"\u0391\u0399"}, {0x1FB4, U"\u0386\u0399"}, {0x1FB6, U"\u0391\u0342"}, {0x1FB7, U"\u0391\u0342\u0399"},
    {0x1FBC, U"\u0391\u0399"}, {0x1FC2, U"\u1FCA\u0399"}, {0x1FC3, U"\u0397\u0399"}, {0x1FC4, U"\u0389\u0399"},
    {0x1FC6, U"\u0397\u0342"}, {0x1FC7, U"\u0397\u0342\u0399"}, {0x1FCC, U"\u0397\u0399"}, {0x1FD2, U"\u0399\u0308\u0300"},
    {0x1FD3, U"\u0399\u0308\u0301"}, {0x1FD6, U"\u0399\u0342"}, {0x1FD7, U"\u0399\u0308\u0342"}, {0x1FE2, U"\u03A5\u0308\u0300"},
    {0x1FE3, U"\u03A5\u0308\u0301"}, {0x1FE4, U"\u03A1\u0313"}, {0x1FE6, U"\u03A5\u0342"}, {0x1FE7, U"\u03A5\u0308\u0342"},
    {0x1FF2, U"\u1FFA\u0399"}, {0x1FF3, U"\u03A9\u0399"}, {0x1FF4, U"\u038F\u0399"}, {0x1FF6, U"\u03A9\u0342"},
    {0x1FF7, U"\u03A9\u0342\u0399"}, {0x1FFC, U"\u03A9\u0399"}, {0xFB00, U"FF"}, {0xFB01, U"FI"},
    {0xFB02, U"FL"}, {0xFB03, U"FFI"}, {0xFB04, U"FFL"}, {0xFB05, U"ST"},
    {0xFB06, U"ST"}, {0xFB13, U"\u0544\u0546"}, {0xFB14, U"\u0544\u0535"}, {0xFB15, U"\u0544\u053B"},
    {0xFB16, U"\u054E\u0546"}, {0xFB17, U"\u0544\u053D"},
});
// clang-format on

const Expansion* find_expansion(char32_t c) {
    const auto* found = std::lower_bound(kExpansions.begin(), kExpansions.end(), c,
                                         [](const Expansion& entry, char32_t value) { return entry.from < value; });
    return found != kExpansions.end() && found->from == c ? found : nullptr;
}

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t simple_lower(char32_t c) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool is_cased(char32_t c) {
    return is_upper(c) || is_lower(c) || is_title(c);
}

bool is_case_ignorable(char32_t c) {
    switch (category(c)) {
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_SK: return true;
        default: return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
    }
}

void append_upper(std::string& out, char32_t c) {
    if (c < 0x80) {
        out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    } else if (const Expansion* expansion = find_expansion(c)) {
        for (const char32_t part : expansion->upper) append_utf8(out, part);
    } else {
        append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
    }
}

// A sigma becomes its final form at the end of a word: after a cased letter and not before one.
bool is_final_sigma(std::string_view text, size_t at, size_t after) {
    size_t i = at;
    bool cased_before = false;
    while (i > 0) {
        const CodePoint before = decode_before(text, i);
        i -= before.bytes;
        if (!is_case_ignorable(before.value)) {
            cased_before = is_cased(before.value);
            break;
        }
    }
    if (!cased_before) return false;
    for (i = after; i < text.size();) {
        const CodePoint next = decode_at(text, i);
        if (!is_case_ignorable(next.value)) return !is_cased(next.value);
        i += next.bytes;
    }
    return true;
}

void append_lower(std::string& out, std::string_view text, size_t at, CodePoint c) {
    if (c.value < 0x80) {
        out += static_cast<char>(c.value >= 'A' && c.value <= 'Z' ? c.value + 32 : c.value);
    } else if (c.value == 0x3A3) {
        append_utf8(out, is_final_sigma(text, at, at + c.bytes) ? 0x3C2 : 0x3C3);
    } else if (c.value == 0x130) {
        out += "i\u0307";
    } else {
        append_utf8(out, simple_lower(c.value));
    }
}

void append_title(std::string& out, char32_t c) {
    const auto title = static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
    const Expansion* expansion = find_expansion(c);
    const bool has_title_form = c >= 0x1F80 && c <= 0x1FFC && (title != c || is_title(c));  // iota written below
    if (expansion == nullptr || has_title_form) {
        append_utf8(out, title);
        return;
    }
    append_utf8(out, expansion->upper[0]);
    for (const char32_t part : expansion->upper.substr(1)) append_utf8(out, c == 0x149 ? part : simple_lower(part));
}

}  // namespace

CodePoint decode_at(std::string_view text, size_t i) {
    const auto byte = [&](size_t offset) -> unsigned { return static_cast<unsigned char>(text[i + offset]); };
    const unsigned first = byte(0);
    if (first < 0x80) return {first, 1};
    const auto continues = [&](size_t n) {
        if (i + n >= text.size()) return false;
        for (size_t k = 1; k <= n; ++k) {
            if ((byte(k) & 0xC0U) != 0x80U) return false;
        }
        return true;
    };
    if (first >= 0xC2 && first < 0xE0 && continues(1)) return {((first & 0x1FU) << 6U) | (byte(1) & 0x3FU), 2};
    if (first >= 0xE0 && first < 0xF0 && continues(2)) {
        const char32_t c = ((first & 0x0FU) << 12U) | ((byte(1) & 0x3FU) << 6U) | (byte(2) & 0x3FU);
        if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) return {c, 3};
    }
    if (first >= 0xF0 && first < 0xF5 && continues(3)) {
        const char32_t c = ((first & 0x07U) << 18U) | ((byte(1) & 0x3FU) << 12U) | ((byte(2) & 0x3FU) << 6U) | (byte(3) & 0x3FU);
        if (c >= 0x10000 && c <= 0x10FFFF) return {c, 4};
    }
    return {kReplacement, 1};
}

CodePoint decode_before(std::string_view text, size_t i) {
    for (size_t bytes = 1; bytes <= 4 && bytes <= i; ++bytes) {
        const auto lead = static_cast<unsigned char>(text[i - bytes]);
        if ((lead & 0xC0U) == 0x80U) continue;
        const CodePoint found = decode_at(text.substr(0, i), i - bytes);
        if (found.bytes == bytes) return found;
        break;
    }
    return {kReplacement, 1};
}

void append_utf8(std::string& out, char32_t c) {
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = kReplacement;
    if (c < 0x80) {
        out += static_cast<char>(c);
    } else if (c < 0x800) {
        out += static_cast<char>(0xC0U | (c >> 6U));
        out += static_cast<char>(0x80U | (c & 0x3FU));
    } else if (c < 0x10000) {
        out += static_cast<char>(0xE0U | (c >> 12U));
        out += static_cast<char>(0x80U | ((c >> 6U) & 0x3FU));
        out += static_cast<char>(0x80U | (c & 0x3FU));
    } else {
        out += static_cast<char>(0xF0U | (c >> 18U));
        out += static_cast<char>(0x80U | ((c >> 12U) & 0x3FU));
        out += static_cast<char>(0x80U | ((c >> 6U) & 0x3FU));
        out += static_cast<char>(0x80U | (c & 0x3FU));
    }
}

bool is_valid_utf8(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
        if (static_cast<unsigned char>(text[i]) < 0x80) {
            ++i;
            continue;
        }
        const CodePoint c = decode_at(text, i);
        if (c.bytes == 1) return false;
        i += c.bytes;
    }
    return true;
}

size_t count_code_points(std::string_view text) {
    size_t n = 0;
    for (size_t i = 0; i < text.size(); i += decode_at(text, i).bytes) ++n;
    return n;
}

size_t byte_offset(std::string_view text, size_t n) {
    size_t i = 0;
    while (n > 0 && i < text.size()) {
        i += decode_at(text, i).bytes;
        --n;
    }
    return i;
}

std::vector<std::string_view> split_code_points(std::string_view text) {
    std::vector<std::string_view> out;
    for (size_t i = 0; i < text.size();) {
        const size_t bytes = decode_at(text, i).bytes;
        out.push_back(text.substr(i, bytes));
        i += bytes;
    }
    return out;
}

bool is_space(char32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
    if (c < 0x80) return c >= 0x20 && c < 0x7F;
    switch (category(c)) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS: return false;
        default: return true;
    }
}

bool is_letter(char32_t c) {
    const utf8proc_category_t kind = category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal_digit(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

// The Other_Uppercase and Other_Lowercase characters that str.isupper and str.islower also accept.
bool is_upper(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}

bool is_lower(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
           (c >= 0x24D0 && c <= 0x24E9);
}

bool is_title(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LT;
}

std::string to_upper(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        append_upper(out, c.value);
        i += c.bytes;
    }
    return out;
}

std::string to_lower(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        append_lower(out, text, i, c);
        i += c.bytes;
    }
    return out;
}

std::string capitalize(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        if (i == 0) append_title(out, c.value);
        else append_lower(out, text, i, c);
        i += c.bytes;
    }
    return out;
}

std::string to_title(std::string_view text) {
    std::string out;
    bool in_word = false;
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        if (in_word) append_lower(out, text, i, c);
        else append_title(out, c.value);
        in_word = is_cased(c.value);
        i += c.bytes;
    }
    return out;
}

std::string swap_case(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        if (is_upper(c.value)) append_lower(out, text, i, c);
        else if (is_lower(c.value)) append_upper(out, c.value);
        else append_utf8(out, c.value);
        i += c.bytes;
    }
    return out;
}

size_t count_space_bytes(std::string_view text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte <= 0x20 || byte == 0xC2 || (byte >= 0xE1 && byte <= 0xE3);
    }));
}

std::string_view strip(std::string_view text, const std::string_view* characters, Side side) {
    std::u32string set;
    if (characters != nullptr) {
        for (size_t i = 0; i < characters->size();) {
            const CodePoint c = decode_at(*characters, i);
            set += c.value;
            i += c.bytes;
        }
    }
    const auto goes = [&](char32_t c) { return characters == nullptr ? is_space(c) : set.find(c) != std::u32string::npos; };
    while (side != Side::right && !text.empty()) {
        const CodePoint c = decode_at(text, 0);
        if (!goes(c.value)) break;
        text.remove_prefix(c.bytes);
    }
    while (side != Side::left && !text.empty()) {
        const CodePoint c = decode_before(text, text.size());
        if (!goes(c.value)) break;
        text.remove_suffix(c.bytes);
    }
    return text;
}

std::vector<std::string_view> split_lines(std::string_view text, LineEnds ends) {
    std::vector<std::string_view> lines;
    size_t begin = 0;
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        const size_t line_end = i;
        i += c.bytes;
        if (!is_line_break(c.value)) continue;
        if (c.value == '\r' && i < text.size() && text[i] == '\n') ++i;
        lines.push_back(text.substr(begin, (ends == LineEnds::keep ? i : line_end) - begin));
        begin = i;
    }
    if (begin < text.size()) lines.push_back(text.substr(begin));
    return lines;
}

}  // namespace espalier::text::jinja
