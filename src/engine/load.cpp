#include "engine/load.h"

#include <fmt/format.h>
#include <sched.h>

#include <fstream>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "kernels/dispatch.h"

namespace espalier::engine {
namespace {

Result<std::optional<kernels::KvType>> parse_kv(const std::string& word) {
    if (word == "auto") return std::optional<kernels::KvType>();
    if (word == "f32") return std::optional(kernels::KvType::f32);
    if (word == "bf16") return std::optional(kernels::KvType::bf16);
    if (word == "fp8") return std::optional(kernels::KvType::fp8);
    return invalid_input(fmt::format("--kv-type is \"{}\", expected auto, f32, bf16 or fp8", word));
}

}  // namespace

Result<kernels::Acts> parse_acts(const std::string& word) {
    // auto: int8 per row and block, the mode with exact integer sums; layouts of plain floats are always multiplied as floats.
    if (word == "auto" || word == "a8") return kernels::Acts::a8;
    if (word == "ckpt" || word == "a4") return kernels::Acts::ckpt;
    if (word == "a16") return kernels::Acts::a16;
    if (word == "a32") return kernels::Acts::a32;
    return invalid_input(fmt::format("--acts is \"{}\", expected auto, ckpt, a4, a8, a16 or a32", word));
}

std::string_view to_string(kernels::Acts acts) {
    switch (acts) {
        case kernels::Acts::a32: return "a32";
        case kernels::Acts::a16: return "a16";
        case kernels::Acts::a8: return "a8";
        case kernels::Acts::ckpt: return "ckpt";
    }
    return "?";
}

std::string_view to_string(kernels::KvType kv) {
    switch (kv) {
        case kernels::KvType::f32: return "f32";
        case kernels::KvType::bf16: return "bf16";
        case kernels::KvType::fp8: return "fp8";
    }
    return "?";
}

int32_t allowed_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return std::max(1, CPU_COUNT(&set));
}

int64_t available_memory_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string name;
    int64_t kib = 0;
    std::string unit;
    while (file >> name >> kib) {
        std::getline(file, unit);
        if (name == "MemAvailable:") return kib * 1024;
    }
    return 0;
}

Result<std::unique_ptr<ThreadPool>> make_pool(int32_t n_threads) {
    if (n_threads < 0 || n_threads > 1024) {
        return invalid_input(fmt::format("--threads is {}, expected 1 to 1024 (0 = all CPUs)", n_threads));
    }
    return std::make_unique<ThreadPool>(n_threads > 0 ? n_threads : allowed_cpus());
}

Result<LoadedModel> load_model(const ModelOptions& options) {
    model::LoadOptions load;
    TRY_ASSIGN(load.acts, parse_acts(options.acts));
    TRY_ASSIGN(load.kv, parse_kv(options.kv_type));
    TRY_ASSIGN(load.isa, kernels::choose_isa(options.isa));
    if (options.progress) {
        load.progress = [&](int64_t done, int64_t total) {
            options.progress(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0);
        };
    }
    LoadedModel loaded;
    TRY_ASSIGN(loaded.pool, make_pool(options.n_threads));
    TRY_ASSIGN(auto checkpoint, checkpoint::Checkpoint::open(options.path));
    TRY_ASSIGN(loaded.model, model::Model::load(std::move(checkpoint), load, *loaded.pool));
    return loaded;
}

}  // namespace espalier::engine
