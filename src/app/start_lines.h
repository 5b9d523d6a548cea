// What `espalier serve` says when it is ready: at most ten lines that answer what runs, how, and how to reach it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/local_engine.h"
#include "engine/warm_up.h"
#include "server/options.h"

namespace espalier::app {

struct StartFacts {
    const server::ServerContext& context;
    const engine::EngineOptions& options;
    std::string url;
    std::string path;             // of the model
    bool has_key = false;         // clients must send one
    bool is_self_tested = false;  // with known tokens
};
std::string start_lines(const StartFacts& facts);

// self_test.json beside a model: {"prompt": [ids], "reply": [ids]}. A model without one gets an empty test. Errors: invalid_input
// when the file is something else.
Result<engine::SelfTest> read_self_test(const std::string& model_path);

}  // namespace espalier::app
