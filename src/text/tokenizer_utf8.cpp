#include "text/tokenizer_utf8.h"

#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace espalier::text {
namespace {

struct LeadByte {
    int n_more = -1;             // continuation bytes; -1: never starts a sequence
    unsigned second_min = 0x80;  // the second byte's range excludes overlong forms, surrogates and values above U+10FFFF
    unsigned second_max = 0xBF;
};

LeadByte classify(unsigned char byte) {
    if (byte < 0x80) return {0};
    if (byte < 0xC2) return {};
    if (byte < 0xE0) return {1};
    if (byte == 0xE0) return {2, 0xA0, 0xBF};
    if (byte == 0xED) return {2, 0x80, 0x9F};
    if (byte < 0xF0) return {2};
    if (byte == 0xF0) return {3, 0x90, 0xBF};
    if (byte < 0xF4) return {3};
    if (byte == 0xF4) return {3, 0x80, 0x8F};
    return {};
}

}  // namespace

Utf8Unit next_utf8(std::string_view bytes) {
    DCHECK(!bytes.empty(), "no unit in an empty text");
    const LeadByte lead = classify(static_cast<unsigned char>(bytes[0]));
    if (lead.n_more < 0) return {Utf8Kind::broken, 1};
    for (size_t i = 1; i <= static_cast<size_t>(lead.n_more); ++i) {
        if (i == bytes.size()) return {Utf8Kind::unfinished, i};
        const unsigned byte = static_cast<unsigned char>(bytes[i]);
        const unsigned low = i == 1 ? lead.second_min : 0x80;
        const unsigned high = i == 1 ? lead.second_max : 0xBF;
        if (byte < low || byte > high) return {Utf8Kind::broken, i};
    }
    return {Utf8Kind::complete, static_cast<size_t>(lead.n_more) + 1};
}

char32_t decode_utf8(const char* bytes, size_t& n_bytes) {
    const auto at = [bytes](int i) { return static_cast<char32_t>(static_cast<unsigned char>(bytes[i])); };
    const char32_t lead = at(0);
    if (lead < 0x80) {
        n_bytes = 1;
        return lead;
    }
    if (lead < 0xE0) {
        n_bytes = 2;
        return (lead & 0x1F) << 6 | (at(1) & 0x3F);
    }
    if (lead < 0xF0) {
        n_bytes = 3;
        return (lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
    }
    n_bytes = 4;
    return (lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F);
}

void append_utf8(std::string& out, char32_t code_point) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xC0 | code_point >> 6);
        put(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        put(0xE0 | code_point >> 12);
        put(0x80 | (code_point >> 6 & 0x3F));
        put(0x80 | (code_point & 0x3F));
    } else {
        put(0xF0 | code_point >> 18);
        put(0x80 | (code_point >> 12 & 0x3F));
        put(0x80 | (code_point >> 6 & 0x3F));
        put(0x80 | (code_point & 0x3F));
    }
}

size_t ascii_prefix(std::string_view bytes) {
    size_t n = 0;
    for (; n + 8 <= bytes.size(); n += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data() + n, 8);
        if ((word & 0x8080808080808080ULL) != 0) break;
    }
    while (n < bytes.size() && static_cast<unsigned char>(bytes[n]) < 0x80) ++n;
    return n;
}

bool is_valid_utf8(std::string_view bytes) {
    while (true) {
        bytes.remove_prefix(ascii_prefix(bytes));
        if (bytes.empty()) return true;
        const Utf8Unit unit = next_utf8(bytes);
        if (unit.kind != Utf8Kind::complete) return false;
        bytes.remove_prefix(unit.n_bytes);
    }
}

std::string replace_invalid_utf8(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size());
    while (!bytes.empty()) {
        const Utf8Unit unit = next_utf8(bytes);
        out.append(unit.kind == Utf8Kind::complete ? bytes.substr(0, unit.n_bytes) : kReplacementUtf8);
        bytes.remove_prefix(unit.n_bytes);
    }
    return out;
}

}  // namespace espalier::text
