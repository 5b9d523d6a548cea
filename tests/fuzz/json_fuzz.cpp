// fuzz-links: espalier_base
// parse_json on arbitrary bytes: it returns a value or an error, and what it returns survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto value = espalier::parse_json(text, "fuzz input");
    if (!value) return 0;
    const auto again = espalier::parse_json(espalier::dump_json(*value), "own output");
    CHECK(again.has_value(), "what dump_json writes parses");
    return 0;
}
