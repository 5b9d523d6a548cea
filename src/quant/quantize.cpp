#include "quant/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/hf_config.h"
#include "checkpoint/writer.h"
#include "model/config.h"
#include "quant/metadata.h"
#include "quant/output.h"
#include "quant/work_folder.h"

namespace espalier::quant {
namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const checkpoint::TensorFiles& files) {
    int64_t bytes = 0;
    for (const auto& [name, tensor] : files.tensors) bytes += static_cast<int64_t>(tensor.data.size());
    return bytes;
}

// FNV-1a over the ids: tells one set of texts from another, nothing more.
uint64_t fingerprint(const TokenSet& tokens) {
    uint64_t hash = 14695981039346656037ull;
    const auto add = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
    add(tokens.n_calibration);
    for (const auto& sequence : tokens.sequences) {
        add(sequence.size());
        for (const TokenId id : sequence) add(static_cast<uint64_t>(id));
    }
    return hash;
}

// What the result depends on: an unfinished run only goes on if all of it is the same.
Result<Json> run_key(const QuantizeOptions& options, const checkpoint::TensorFiles& files, const TokenSet& tokens) {
    Json shards = Json::array();
    for (const MappedFile& shard : files.shards) {
        std::error_code error;
        const auto time = fs::last_write_time(shard.path(), error);
        if (error) return invalid_input(fmt::format("{}: {}", shard.path(), error.message()));
        shards.push_back({shard.path(), shard.bytes().size(), time.time_since_epoch().count()});
    }
    return Json{{"shards", shards},
                {"recipe", to_string(options.choices.recipe)},
                {"lm_head", options.choices.has_head},
                {"mtp", options.choices.has_mtp},
                {"fp8_kv", options.choices.has_fp8_kv},
                {"shard_bytes_max", options.shard_bytes_max},
                {"texts", fmt::format("{:016x}", fingerprint(tokens))}};
}

class Run {
public:
    Run(const QuantizeOptions& options, const TokenSet& tokens, ThreadPool& pool)
        : options_(options),
          tokens_(tokens),
          pool_(pool),
          source_stream_({options.source, kernels::Acts::a32, options.isa}, tokens, pool) {}

    Result<Report> run() {
        TRY_ASSIGN(source_, checkpoint::Checkpoint::open(options_.source));
        TRY_ASSIGN(files_, checkpoint::open_tensor_files(options_.source));
        TRY_ASSIGN(config_, model::ModelConfig::parse(source_->text_config()));
        TRY_ASSIGN(plan_, make_plan(*source_, files_, options_.choices));
        if (plan_.needs_calibration() && tokens_.n_calibration == 0) {
            return invalid_input(
                fmt::format("--recipe {} with these options needs texts for calibration: give --calib FILE, or use "
                            "a recipe without input scales and --kv none",
                            to_string(options_.choices.recipe)));
        }
        TRY_ASSIGN(const Json key, run_key(options_, files_, tokens_));
        TRY_ASSIGN(WorkFolder work, WorkFolder::open(options_.destination, key, options_.resume));
        work_ = &work;
        if (!tokens_.sequences.empty()) TRY(run_source());
        TRY(write());
        TRY_ASSIGN(Report report, measure());
        work.remove();
        return report;
    }

private:
    Status tell(std::string_view what, double done) const { return options_.progress ? options_.progress(what, done) : Status(); }

    Status run_source() {
        WorkFolder::Progress& progress = work_->progress();
        if (progress.final_done && (progress.mtp_done || !options_.choices.has_mtp)) return {};
        if (progress.layers_done < 0) {
            TRY_ASSIGN(RowFile rows, work_->layer_rows(-1, config_.hidden));
            TRY(source_stream_.embed(rows));
            progress.layers_done = 0;
            TRY(work_->save());
        }
        for (int32_t layer = progress.layers_done; layer < config_.n_layers; ++layer) {
            TRY(tell(fmt::format("calibrating layer {} of {}", layer + 1, config_.n_layers),
                     static_cast<double>(layer) / config_.n_layers));
            TRY_ASSIGN(const RowFile in, work_->layer_rows(layer - 1, config_.hidden));
            TRY_ASSIGN(RowFile out, work_->layer_rows(layer, config_.hidden));
            TRY(source_stream_.run_layer(layer, in, out, &progress.maxima));
            progress.layers_done = layer + 1;
            TRY(work_->save());
        }
        TRY_ASSIGN(RowFile final_rows, work_->final_rows(config_.hidden));
        if (!progress.final_done) {
            TRY_ASSIGN(const RowFile in, work_->layer_rows(config_.n_layers - 1, config_.hidden));
            TRY(source_stream_.run_final_norm(in, final_rows, &progress.maxima));
            progress.final_done = true;
            TRY(work_->save());
        }
        if (options_.choices.has_mtp && !progress.mtp_done) {
            TRY(tell("calibrating the MTP layer", 1));
            TRY(source_stream_.run_mtp(final_rows, progress.maxima));
            progress.mtp_done = true;
            TRY(work_->save());
        }
        return {};
    }

    Status write() {
        if (work_->progress().is_written) return {};
        int64_t n_told = 0;
        // Every weight is read for its maxima, then for its scales (if it has a matrix of them) and its codes.
        const auto n_total =
            static_cast<double>(files_.tensors.size() + plan_.modules.size() * (is_nvfp4(options_.choices.recipe) ? 2 : 1));
        const OutputSource output{*source_, files_, plan_, work_->progress().maxima, pool_, [&](const std::string& tensor) {
                                      return tell(fmt::format("writing {}", tensor),
                                                  std::min(1.0, static_cast<double>(n_told++) / n_total));
                                  }};
        TRY_ASSIGN(const auto tensors, output_tensors(output));
        TRY(checkpoint::write_weights(options_.destination, tensors, options_.shard_bytes_max, checkpoint::Flush::to_disk,
                                      checkpoint::Existing::keep));
        TRY(write_metadata(options_.source, options_.destination, source_->raw_config(), plan_, options_.version));
        work_->progress().is_written = true;
        return work_->save();
    }

    Result<Report> measure() {
        Report report;
        report.source = options_.source;
        report.destination = options_.destination;
        report.choices = options_.choices;
        report.bytes_source = bytes_of(files_);
        TRY_ASSIGN(const auto written, checkpoint::open_tensor_files(options_.destination));
        report.bytes_quantised = bytes_of(written);
        report.calibration_sequences = static_cast<int64_t>(tokens_.n_calibration);
        report.calibration_tokens = tokens_.row_begin(tokens_.n_calibration);
        TRY(tell("comparing weights", 0));
        TRY_ASSIGN(auto quantised, checkpoint::Checkpoint::open(options_.destination));
        TRY_ASSIGN(report.modules, module_errors(*source_, *quantised, plan_, pool_));
        if (tokens_.sequences.size() > tokens_.n_calibration) {
            TRY_ASSIGN(report.model, compare_models());
        }
        return report;
    }

    Result<ModelError> compare_models() {
        TokenSet held_out;
        held_out.sequences.assign(tokens_.sequences.begin() + static_cast<std::ptrdiff_t>(tokens_.n_calibration),
                                  tokens_.sequences.end());
        LayerStream stream({options_.destination, kernels::Acts::ckpt, options_.isa}, held_out, pool_);
        TRY_ASSIGN(RowFile in, work_->quantised_rows(-1, config_.hidden));
        TRY(stream.embed(in));
        for (int32_t layer = 0; layer < config_.n_layers; ++layer) {
            TRY(tell(fmt::format("comparing layer {} of {}", layer + 1, config_.n_layers),
                     static_cast<double>(layer) / config_.n_layers));
            TRY_ASSIGN(RowFile out, work_->quantised_rows(layer, config_.hidden));
            TRY(stream.run_layer(layer, in, out, nullptr));
            in = std::move(out);
        }
        TRY_ASSIGN(RowFile quantised_rows, work_->quantised_rows(config_.n_layers, config_.hidden));
        TRY(stream.run_final_norm(in, quantised_rows, nullptr));
        TRY(tell("comparing predictions", 1));
        TRY_ASSIGN(const RowFile source_rows, work_->final_rows(config_.hidden));
        const PredictionRows rows{source_stream_, source_rows, tokens_.row_begin(tokens_.n_calibration), stream, quantised_rows};
        TRY_ASSIGN(ModelError error, compare_predictions(rows, held_out, pool_));
        error.is_held_out = tokens_.n_records > 1;
        return error;
    }

    const QuantizeOptions& options_;
    const TokenSet& tokens_;
    ThreadPool& pool_;
    LayerStream source_stream_;
    std::unique_ptr<checkpoint::Checkpoint> source_;
    checkpoint::TensorFiles files_;
    model::ModelConfig config_;
    Plan plan_;
    WorkFolder* work_ = nullptr;
};

}  // namespace

Result<int32_t> vocabulary_of(const std::string& folder) {
    TRY_ASSIGN(const auto config, checkpoint::read_hf_config(folder));
    TRY_ASSIGN(const auto parsed, model::ModelConfig::parse(config.text));
    return parsed.vocab;
}

Result<Report> quantize(const QuantizeOptions& options, const TokenSet& tokens, ThreadPool& pool) {
    return Run(options, tokens, pool).run();
}

}  // namespace espalier::quant
