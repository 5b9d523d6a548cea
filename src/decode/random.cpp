#include "decode/random.h"

#include <array>

namespace espalier::decode {
namespace {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
        const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
                   static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

}  // namespace

double uniform_at(uint64_t seed, uint64_t position) {
    const auto out = philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    const uint64_t bits = (uint64_t{out[0]} << 32 | out[1]) >> 11;
    return static_cast<double>(bits) * 0x1.0p-53;
}

}  // namespace espalier::decode
