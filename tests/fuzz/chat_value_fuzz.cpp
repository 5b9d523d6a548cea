// fuzz-links: espalier_text
// JSON to Value and back: what was read once is read again to the same text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using espalier::text::parse_json_value;
    using espalier::text::to_json_text;
    const auto value = parse_json_value(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz input");
    if (!value) return 0;
    const auto text = to_json_text(*value);
    CHECK(text.has_value(), "a parsed value has JSON");
    const auto again = parse_json_value(*text, "own output");
    CHECK(again.has_value(), "own JSON parses");
    CHECK(*to_json_text(*again) == *text, "writing and reading changes nothing");
    return 0;
}
