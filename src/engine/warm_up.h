// Before the first request: does this build compute on this machine what it computed elsewhere?
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace espalier::cache {
class Memory;
}
namespace espalier::model {
class Forward;
}

namespace espalier::engine {

// Greedy decoding of `prompt` begins with `reply`. Both empty: only warm up and look for numbers that are none.
struct SelfTest {
    std::vector<int32_t> prompt;
    std::vector<int32_t> reply;
};

// Runs it on a sequence of its own, which leaves nothing behind; also faults in what a first request would wait for. `forward`
// must be idle. Errors: internal with the first token that differs and what to report; invalid_input for ids outside
// the vocabulary.
Status run_self_test(model::Forward& forward, cache::Memory& memory, const SelfTest& test);

}  // namespace espalier::engine
