// Counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). The number
// at a position is a pure function of (seed, position), so sampled text does not depend on drafts, batching or restarts.
#pragma once

#include <cstdint>

namespace espalier::decode {

// Uniform in [0, 1) with 53 bits.
double uniform_at(uint64_t seed, uint64_t position);

}  // namespace espalier::decode
