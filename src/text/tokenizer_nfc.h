// Unicode normalisation form C, on top of utf8proc's character data.
//
// Nearly all text is in NFC already, so a bit table says for each code point whether it is settled: a starter that NFC leaves
// as it is and that never joins the character before it. The text is then cut before every settled code point; only a cut
// that holds an unsettled one is decomposed and composed. utf8proc's own whole-string call is not used because it orders
// combining marks by insertion: a message of a million alternating marks would take hours. Here the marks are sorted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::text {

class Nfc {
public:
    // Builds the table (a few milliseconds).
    Nfc();

    // `text` must be valid UTF-8. Returns `text` itself when it is in NFC already, else a view of `storage`, which is
    // overwritten.
    std::string_view apply(std::string_view text, std::string& storage) const;

private:
    bool is_settled(char32_t code_point) const { return (unsettled_[code_point >> 6] >> (code_point & 63) & 1) == 0; }
    void mark(char32_t code_point) { unsettled_[code_point >> 6] |= uint64_t{1} << (code_point & 63); }
    // The first byte at or after `from` of a cut that holds an unsettled code point, and one past its end; text.size() if none.
    struct Cut {
        size_t begin = 0;
        size_t end = 0;
    };
    Cut find_cut(std::string_view text, size_t from) const;

    std::vector<uint64_t> unsettled_;  // [0x110000 / 64]
};

}  // namespace espalier::text
