#include "text/tokenizer_nfc.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/check.h"
#include "text/tokenizer_utf8.h"

namespace espalier::text {
namespace {

constexpr char32_t kCodePointEnd = 0x110000;
constexpr int kDecomposedMax = 32;  // the longest full canonical decomposition has 4 code points

int combining_class(utf8proc_int32_t code_point) {
    return utf8proc_get_property(code_point)->combining_class;
}

// Appends the full canonical decomposition of one code point.
void append_decomposed(std::vector<utf8proc_int32_t>& out, char32_t code_point) {
    utf8proc_int32_t parts[kDecomposedMax];
    int boundary_state = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts, kDecomposedMax,
                                           static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary_state);
    CHECK(n >= 0 && n <= kDecomposedMax, "canonical decomposition of one code point");
    out.insert(out.end(), parts, parts + n);
}

// Canonical ordering: each run of marks is sorted by class, equal classes keep their order.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
    auto run = code_points.begin();
    while (run != code_points.end()) {
        const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
        run = std::find_if(run, code_points.end(), is_mark);
        const auto run_end = std::find_if_not(run, code_points.end(), is_mark);
        std::stable_sort(run, run_end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
        run = run_end;
    }
}

void compose(std::vector<utf8proc_int32_t>& code_points) {
    const auto n = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                            static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    CHECK(n >= 0 && static_cast<size_t>(n) <= code_points.size(), "composition never grows");
    code_points.resize(static_cast<size_t>(n));
}

void append_normalised(std::string& out, std::string_view cut) {
    std::vector<utf8proc_int32_t> code_points;
    for (size_t at = 0; at < cut.size();) {
        size_t n_bytes = 0;
        append_decomposed(code_points, decode_utf8(cut.data() + at, n_bytes));
        at += n_bytes;
    }
    order_marks(code_points);
    compose(code_points);
    for (const auto c : code_points) append_utf8(out, static_cast<char32_t>(c));
}

}  // namespace

Nfc::Nfc() : unsettled_(kCodePointEnd / 64, 0) {
    std::vector<utf8proc_int32_t> parts;
    for (char32_t c = 0x80; c < kCodePointEnd; ++c) {
        if (c >= 0xAC00 && c <= 0xDFFF) continue;  // Hangul syllables are settled; surrogates do not occur
        const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
        if (property->combining_class != 0) mark(c);
        if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) continue;
        parts.clear();
        append_decomposed(parts, c);
        // Whatever follows the first part of a decomposition may join the character before it.
        for (size_t i = 1; i < parts.size(); ++i) mark(static_cast<char32_t>(parts[i]));
        compose(parts);
        if (parts.size() != 1 || parts[0] != static_cast<utf8proc_int32_t>(c)) mark(c);
    }
    for (char32_t vowel = 0x1161; vowel <= 0x1175; ++vowel) mark(vowel);
    for (char32_t tail = 0x11A8; tail <= 0x11C2; ++tail) mark(tail);
}

Nfc::Cut Nfc::find_cut(std::string_view text, size_t from) const {
    size_t begin = from;
    bool has_unsettled = false;
    size_t at = from;
    while (at < text.size()) {
        if (const size_t n_ascii = ascii_prefix(text.substr(at)); n_ascii > 0) {
            if (has_unsettled) return {begin, at};
            at += n_ascii;
            begin = at - 1;
            continue;
        }
        size_t n_bytes = 0;
        if (!is_settled(decode_utf8(text.data() + at, n_bytes))) {
            has_unsettled = true;
        } else {
            if (has_unsettled) return {begin, at};
            begin = at;
        }
        at += n_bytes;
    }
    return {has_unsettled ? begin : text.size(), text.size()};
}

std::string_view Nfc::apply(std::string_view text, std::string& storage) const {
    Cut cut = find_cut(text, 0);
    if (cut.begin == text.size()) return text;
    storage.clear();
    storage.reserve(text.size());
    size_t copied = 0;
    while (cut.begin < text.size()) {
        storage.append(text, copied, cut.begin - copied);
        append_normalised(storage, text.substr(cut.begin, cut.end - cut.begin));
        copied = cut.end;
        cut = find_cut(text, cut.end);
    }
    storage.append(text, copied);
    return storage;
}

}  // namespace espalier::text
