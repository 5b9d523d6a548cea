// Quantises a checkpoint: calibrates on texts, writes the quantised folder, measures what it cost. Memory stays at a few layers.
//
// Steps, each of which an interrupted run takes up again where it was:
//   1. hidden rows of all texts go through the source layer by layer, in float32; the largest activations are kept per module
//   2. weights are written shard by shard, then the metadata, config.json last
//   3. the written model is read back: the errors of its weights, and its predictions on held-out texts beside the source's
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "quant/recipe.h"
#include "quant/report.h"
#include "quant/token_sets.h"

namespace espalier::quant {

struct QuantizeOptions {
    std::string source;
    std::string destination;
    Choices choices;
    kernels::Isa isa = kernels::Isa::scalar;
    bool resume = false;
    int64_t shard_bytes_max = int64_t{2} << 30;
    std::string version;  // of this program, for the metadata
    // Told what is being done, and how much of that is done (0 to 1). An error stops the run there, as a kill would.
    std::function<Status(std::string_view what, double done)> progress;
};

// The vocabulary of a model folder, for reading texts. Errors: those of its config.json.
Result<int32_t> vocabulary_of(const std::string& folder);

// `tokens` may be empty when the choices need no calibration; then the whole model is not compared. Errors: a bad source or
// destination, missing calibration texts, a full disk; the destination then has no config.json.
Result<Report> quantize(const QuantizeOptions& options, const TokenSet& tokens, ThreadPool& pool);

}  // namespace espalier::quant
