// How a model is to be loaded, in the words of the command line. No tensor types: the engine's callers see this.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace espalier::engine {

struct ModelOptions {
    std::string path;
    std::string acts = "auto";             // auto, ckpt (a4), a8, a16, a32
    std::string kv_type = "auto";          // auto, f32, bf16, fp8
    std::string isa;                       // empty = the best this CPU has
    int32_t n_threads = 0;                 // 0 = every CPU this process may use
    std::function<void(double)> progress;  // 0 to 1; may be empty
};

}  // namespace espalier::engine
