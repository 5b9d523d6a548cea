// From the words of the command line to a loaded model: numerics mode, KV type, tier, threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/model_options.h"
#include "model/model.h"

namespace espalier::engine {

struct LoadedModel {
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<const model::Model> model;
};

// Errors: invalid_input for a word that is none of the above, else what opening and binding report.
Result<LoadedModel> load_model(const ModelOptions& options);

// A word of --acts. Errors: invalid_input with the words there are.
Result<kernels::Acts> parse_acts(const std::string& word);
std::string_view to_string(kernels::Acts acts);
std::string_view to_string(kernels::KvType kv);

// n_threads workers, or one for every CPU this process may use if 0. Errors: invalid_input out of 0 to 1024.
Result<std::unique_ptr<ThreadPool>> make_pool(int32_t n_threads);

// CPUs this process may use.
int32_t allowed_cpus();
// What the system could still hand out without swapping, from /proc/meminfo; 0 if unknown.
int64_t available_memory_bytes();

}  // namespace espalier::engine
