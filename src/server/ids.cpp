#include "server/ids.h"

#include <fmt/format.h>
#include <sys/random.h>

#include "base/check.h"

namespace espalier::server {

uint64_t random_u64() {
    uint64_t value = 0;
    CHECK(getrandom(&value, sizeof value, 0) == static_cast<ssize_t>(sizeof value), "getrandom gives 8 bytes");
    return value;
}

std::string new_id(std::string_view prefix) {
    return fmt::format("{}{:016x}{:08x}", prefix, random_u64(), random_u64() & 0xffffffffU);
}

}  // namespace espalier::server
