// What quantising cost: per module the error of its weights, for the whole model how its predictions on held-out text moved.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "quant/layer_stream.h"
#include "quant/recipe.h"

namespace espalier::quant {

struct ModuleError {
    std::string name;
    WeightLayout layout = WeightLayout::f32;
    int64_t n = 0;
    int64_t k = 0;
    double relative_error = 0;  // |W - W'| / |W|, Frobenius
    double sqnr_db = 0;         // signal to quantisation noise
    double largest_error = 0;   // of one weight
};

struct ModelError {
    int64_t n_tokens = 0;     // positions with a prediction
    bool is_held_out = true;  // false: there was only one text, used for calibration too
    double kl_mean = 0;       // of the source's distribution to the quantised one's, nats
    double kl_max = 0;
    double perplexity_source = 0;
    double perplexity_quantised = 0;
    double top1_agreement = 0;
};

struct Report {
    std::string source;
    std::string destination;
    Choices choices;
    int64_t bytes_source = 0;  // of all tensors
    int64_t bytes_quantised = 0;
    int64_t calibration_sequences = 0;
    int64_t calibration_tokens = 0;
    std::vector<ModuleError> modules;
    std::optional<ModelError> model;
};

// Compares the weights that were written, as the loader reads them, with the source's.
Result<std::vector<ModuleError>> module_errors(checkpoint::Checkpoint& source, checkpoint::Checkpoint& quantised,
                                               const Plan& plan, ThreadPool& pool);

// Compares predictions. Rows after the final norm of `tokens` (all of it) begin at row 0 of quantised_rows and at source_row of
// source_rows.
struct PredictionRows {
    const LayerStream& source;
    const RowFile& source_rows;
    int64_t source_row = 0;
    const LayerStream& quantised;
    const RowFile& quantised_rows;
};
Result<ModelError> compare_predictions(const PredictionRows& rows, const TokenSet& tokens, ThreadPool& pool);

Json report_json(const Report& report);
// A table of modules by kind, and the whole model in words.
std::string report_text(const Report& report);

}  // namespace espalier::quant
