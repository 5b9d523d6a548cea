#include "quant/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "kernels/gather/gather.h"
#include "tensor/buffer.h"

namespace espalier::quant {
namespace {

constexpr int64_t kTaskRows = 16;
constexpr int64_t kLogitRows = 16;  // of both models at a time

struct RowError {
    double signal = 0;
    double noise = 0;
    double largest = 0;
};

RowError compare_row(const float* a, const float* b, int64_t k) {
    RowError error;
    for (int64_t i = 0; i < k; ++i) {
        const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        error.signal += static_cast<double>(a[i]) * static_cast<double>(a[i]);
        error.noise += difference * difference;
        error.largest = std::max(error.largest, std::fabs(difference));
    }
    return error;
}

ModuleError compare_weights(const PlannedModule& module, const WeightView& source, const WeightView& quantised,
                            ThreadPool& pool) {
    std::vector<RowError> rows(static_cast<size_t>(module.n));
    pool.run((module.n + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
        std::vector<float> a(static_cast<size_t>(module.k));
        std::vector<float> b(static_cast<size_t>(module.k));
        for (int64_t row = task * kTaskRows; row < std::min(module.n, (task + 1) * kTaskRows); ++row) {
            kernels::gather_row(source, row, a.data());
            kernels::gather_row(quantised, row, b.data());
            rows[static_cast<size_t>(row)] = compare_row(a.data(), b.data(), module.k);
        }
    });
    RowError all;
    for (const RowError& row : rows) {
        all.signal += row.signal;
        all.noise += row.noise;
        all.largest = std::max(all.largest, row.largest);
    }
    ModuleError error{module.name, quantised.layout, module.n, module.k, 0, 0, all.largest};
    error.relative_error = all.signal > 0 ? std::sqrt(all.noise / all.signal) : 0;
    // Without noise the ratio has no value; 200 dB is beyond what floats can tell apart.
    error.sqnr_db = all.noise > 0 ? 10 * std::log10(all.signal / all.noise) : 200;
    return error;
}

struct Prediction {
    double kl = 0;
    double nll_source = 0;
    double nll_quantised = 0;
    bool agrees = false;
};

double log_of_sum(const float* logits, int64_t n, float largest) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i] - largest));
    return std::log(sum) + static_cast<double>(largest);
}

Prediction compare_logits(const float* source, const float* quantised, int64_t vocab, TokenId next) {
    const float* source_best = std::max_element(source, source + vocab);
    const float* quantised_best = std::max_element(quantised, quantised + vocab);
    const double source_sum = log_of_sum(source, vocab, *source_best);
    const double quantised_sum = log_of_sum(quantised, vocab, *quantised_best);
    Prediction result;
    for (int64_t i = 0; i < vocab; ++i) {
        const double p = static_cast<double>(source[i]) - source_sum;
        const double q = static_cast<double>(quantised[i]) - quantised_sum;
        result.kl += std::exp(p) * (p - q);
    }
    result.nll_source = source_sum - static_cast<double>(source[next]);
    result.nll_quantised = quantised_sum - static_cast<double>(quantised[next]);
    result.agrees = source_best - source == quantised_best - quantised;
    return result;
}

// The head of one of the two models, over a few rows at a time.
class Head {
public:
    static Result<Head> create(const LayerStream& stream, ThreadPool& pool) {
        Head head(pool);
        TRY_ASSIGN(head.model_, stream.load_head());
        TRY_ASSIGN(head.scratch_, Buffer::allocate(head.model_->head().scratch_bytes(kLogitRows)));
        head.rows_.resize(static_cast<size_t>(kLogitRows * head.model_->config().hidden));
        head.logits_.resize(static_cast<size_t>(kLogitRows * head.model_->config().vocab));
        return head;
    }
    int64_t vocab() const { return model_->config().vocab; }
    Status run(const RowFile& rows, int64_t begin, int64_t n) {
        const int64_t hidden = model_->config().hidden;
        TRY(rows.read(begin, std::span(rows_).first(static_cast<size_t>(n * hidden))));
        model_->head().apply(rows_.data(), hidden, n, logits_.data(), vocab(), scratch_.data(), *pool_);
        return {};
    }
    const float* logits(int64_t row) const { return logits_.data() + row * vocab(); }

private:
    explicit Head(ThreadPool& pool) : pool_(&pool) {}
    ThreadPool* pool_;
    std::unique_ptr<const model::Model> model_;
    Buffer scratch_;
    std::vector<float> rows_;
    std::vector<float> logits_;
};

// "layers.12.mlp.up_proj" -> "layers.*.mlp.up_proj".
std::string kind_of(const std::string& module) {
    const size_t begin = module.find("layers.");
    if (begin == std::string::npos) return module;
    const size_t number = begin + 7;
    return module.substr(0, number) + "*" + module.substr(std::min(module.find('.', number), module.size()));
}

}  // namespace

Result<std::vector<ModuleError>> module_errors(checkpoint::Checkpoint& source, checkpoint::Checkpoint& quantised,
                                               const Plan& plan, ThreadPool& pool) {
    std::vector<ModuleError> errors;
    for (const PlannedModule& module : plan.modules) {
        TRY_ASSIGN(const WeightView before, source.linear(module.source, module.n, module.k));
        TRY_ASSIGN(const WeightView after, quantised.linear(module.name, module.n, module.k));
        errors.push_back(compare_weights(module, before, after, pool));
        source.release(before);
        quantised.release(after);
    }
    return errors;
}

Result<ModelError> compare_predictions(const PredictionRows& rows, const TokenSet& tokens, ThreadPool& pool) {
    TRY_ASSIGN(Head source, Head::create(rows.source, pool));
    TRY_ASSIGN(Head quantised, Head::create(rows.quantised, pool));
    ModelError total;
    double nll_source = 0;
    double nll_quantised = 0;
    int64_t n_agree = 0;
    for (size_t s = 0; s < tokens.sequences.size(); ++s) {
        const std::vector<TokenId>& ids = tokens.sequences[s];
        const auto n_predictions = static_cast<int64_t>(ids.size()) - 1;
        for (int64_t begin = 0; begin < n_predictions; begin += kLogitRows) {
            const int64_t n = std::min(kLogitRows, n_predictions - begin);
            TRY(source.run(rows.source_rows, rows.source_row + tokens.row_begin(s) + begin, n));
            TRY(quantised.run(rows.quantised_rows, tokens.row_begin(s) + begin, n));
            Prediction predictions[kLogitRows];
            pool.run(n, [&](int64_t row, int) {
                predictions[row] = compare_logits(source.logits(row), quantised.logits(row), source.vocab(),
                                                  ids[static_cast<size_t>(begin + row + 1)]);
            });
            for (int64_t row = 0; row < n; ++row) {
                total.kl_mean += predictions[row].kl;
                total.kl_max = std::max(total.kl_max, predictions[row].kl);
                nll_source += predictions[row].nll_source;
                nll_quantised += predictions[row].nll_quantised;
                n_agree += predictions[row].agrees ? 1 : 0;
            }
        }
        total.n_tokens += n_predictions;
    }
    const auto n = static_cast<double>(std::max<int64_t>(total.n_tokens, 1));
    total.kl_mean /= n;
    total.perplexity_source = std::exp(nll_source / n);
    total.perplexity_quantised = std::exp(nll_quantised / n);
    total.top1_agreement = static_cast<double>(n_agree) / n;
    return total;
}

Json report_json(const Report& report) {
    Json modules = Json::array();
    for (const ModuleError& m : report.modules) {
        modules.push_back({{"name", m.name},
                           {"format", to_string(m.layout)},
                           {"n", m.n},
                           {"k", m.k},
                           {"relative_error", m.relative_error},
                           {"sqnr_db", m.sqnr_db},
                           {"largest_error", m.largest_error}});
    }
    Json json = {{"source", report.source},
                 {"destination", report.destination},
                 {"recipe", to_string(report.choices.recipe)},
                 {"lm_head", report.choices.has_head},
                 {"mtp", report.choices.has_mtp},
                 {"kv", report.choices.has_fp8_kv ? "fp8" : "none"},
                 {"bytes_source", report.bytes_source},
                 {"bytes_quantised", report.bytes_quantised},
                 {"calibration", {{"sequences", report.calibration_sequences}, {"tokens", report.calibration_tokens}}},
                 {"modules", std::move(modules)},
                 {"model", nullptr}};
    if (report.model) {
        json["model"] = {{"tokens", report.model->n_tokens},
                         {"held_out", report.model->is_held_out},
                         {"kl_mean", report.model->kl_mean},
                         {"kl_max", report.model->kl_max},
                         {"perplexity_source", report.model->perplexity_source},
                         {"perplexity_quantised", report.model->perplexity_quantised},
                         {"top1_agreement", report.model->top1_agreement}};
    }
    return json;
}

std::string report_text(const Report& report) {
    struct Kind {
        WeightLayout layout = WeightLayout::f32;
        int64_t n_modules = 0;
        double error_sum = 0;
        double worst = 0;
        double sqnr_min = 1e9;
        std::string worst_name;
    };
    std::map<std::string, Kind> kinds;
    for (const ModuleError& m : report.modules) {
        Kind& kind = kinds[kind_of(m.name)];
        kind.layout = m.layout;
        ++kind.n_modules;
        kind.error_sum += m.relative_error;
        kind.sqnr_min = std::min(kind.sqnr_min, m.sqnr_db);
        if (m.relative_error >= kind.worst) {
            kind.worst = m.relative_error;
            kind.worst_name = m.name;
        }
    }
    std::string out;
    const auto line = std::back_inserter(out);
    fmt::format_to(line, "{:<34} {:>7}  {:<10} {:>9} {:>9} {:>9}  worst\n", "modules", "number", "format", "error", "largest",
                   "SQNR dB");
    for (const auto& [name, kind] : kinds) {
        fmt::format_to(line, "{:<34} {:>7}  {:<10} {:>9.5f} {:>9.5f} {:>9.2f}  {}\n", name, kind.n_modules,
                       to_string(kind.layout), kind.error_sum / static_cast<double>(kind.n_modules), kind.worst, kind.sqnr_min,
                       kind.worst_name);
    }
    fmt::format_to(line, "size         {:.1f} MiB -> {:.1f} MiB\n", static_cast<double>(report.bytes_source) / 1048576,
                   static_cast<double>(report.bytes_quantised) / 1048576);
    fmt::format_to(line, "calibration  {} sequences, {} tokens\n", report.calibration_sequences, report.calibration_tokens);
    if (!report.model) {
        fmt::format_to(line, "whole model  not compared\n");
        return out;
    }
    const ModelError& m = *report.model;
    fmt::format_to(
        line,
        "whole model  {} {} tokens: KL {:.5f} nats (largest {:.4f}), perplexity {:.4f} -> {:.4f}, top-1 agreement {:.2f} %\n",
        m.n_tokens, m.is_held_out ? "held-out" : "calibration", m.kl_mean, m.kl_max, m.perplexity_source, m.perplexity_quantised,
        100 * m.top1_agreement);
    return out;
}

}  // namespace espalier::quant
