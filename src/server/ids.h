// Identifiers that clients see, and the seed of requests that bring none: random, from the kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::server {

uint64_t random_u64();
// prefix + 24 random characters of [0-9a-f], e.g. "chatcmpl-…", "call_…".
std::string new_id(std::string_view prefix);

}  // namespace espalier::server
