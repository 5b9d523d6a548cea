// Byte sizes as people write them.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace espalier::app {

// "512M", "4G", "1.5G", "1073741824": K, M, G, T are powers of 1024, with or without a trailing "B" or "iB". Errors:
// invalid_input.
Result<int64_t> parse_size(const std::string& text);

// "1.5 GiB", "12.3 MiB": for people.
std::string size_text(int64_t bytes);

}  // namespace espalier::app
