#include "probe/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "probe/eval_model.h"
#include "probe/peaks.h"

namespace espalier::probe {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

Spread spread_of(std::vector<double> values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const double low = *least;
    const double high = *most;
    return {median_of(std::move(values)), low, high};
}

// What one forward reads and multiplies.
struct ModelWork {
    double layer_bytes = 0;
    std::array<double, model::kWorks> matrix_bytes{};
    double head_bytes = 0;
    double layer_macs_per_token = 0;
    double head_macs = 0;
    double kv_bytes_per_token = 0;
    kernels::Acts acts = kernels::Acts::a32;  // of the largest matrices
};

ModelWork work_of(const model::Model& model) {
    ModelWork work;
    const auto add = [&](const model::LinearGroup& group, model::Work kind) {
        work.matrix_bytes[static_cast<size_t>(kind)] += static_cast<double>(group.bytes());
        for (const auto& matrix : group.matrices()) {
            work.layer_bytes += static_cast<double>(matrix.bytes());
            work.layer_macs_per_token += static_cast<double>(matrix.n()) * static_cast<double>(matrix.k());
        }
    };
    for (const model::LayerWeights& layer : model.layers()) {
        add(layer.mlp.gate_up, model::Work::mlp_in);
        add(layer.mlp.down, model::Work::mlp_out);
        if (layer.attention) {
            add(layer.attention->qkv, model::Work::mixer_in);
            add(layer.attention->o, model::Work::mixer_out);
        } else {
            add(layer.recurrent->in, model::Work::mixer_in);
            add(layer.recurrent->out, model::Work::mixer_out);
        }
    }
    for (const auto& matrix : model.head().matrices()) {
        work.head_bytes += static_cast<double>(matrix.bytes());
        work.head_macs += static_cast<double>(matrix.n()) * static_cast<double>(matrix.k());
    }
    work.matrix_bytes[static_cast<size_t>(model::Work::head)] = work.head_bytes;
    work.acts = model.layers().front().mlp.down.matrices().front().kernel().acts;
    const cache::StateShape& shape = model.state_shape();
    work.kv_bytes_per_token =
        2.0 * model.n_trunk_kv_layers() * shape.n_kv_heads * shape.head_dim * static_cast<double>(shape.kv_element_bytes());
    return work;
}

struct Test {
    enum class Kind { prefill, decode, verify };
    Kind kind;
    int32_t size;
    int32_t depth;
    std::vector<double> seconds;
    std::array<model::StepProfile::Entry, model::kWorks> profile{};  // of all repetitions together
};

class Bench {
public:
    Bench(const BenchModelOptions& options, EvalSession& session) : options_(options), session_(session) {
        logits_.resize(static_cast<size_t>(std::max(1, verify_max())) * static_cast<size_t>(session.vocab()));
    }

    Status run(std::vector<Test>& tests, Peaks& peaks) {
        TRY(fill_depths());
        for (const Test& test : tests) {
            TRY_ASSIGN([[maybe_unused]] const double warm_up, run_once(test));
        }
        for (int32_t repetition = 0; repetition < options_.repetitions; ++repetition) {
            peaks.sample();
            for (Test& test : tests) {
                TRY_ASSIGN(const double seconds, run_once(test));
                test.seconds.push_back(seconds);
            }
        }
        return {};
    }

    // Further repetitions of every test, watched.
    Status run_profiles(std::vector<Test>& tests) {
        model::StepProfile profile(session_.pool());
        session_.forward().set_profile(&profile);
        for (Test& test : tests) {
            profile.reset();
            for (int32_t repetition = 0; repetition < options_.repetitions; ++repetition) {
                TRY_ASSIGN([[maybe_unused]] const double seconds, run_once(test));
            }
            test.profile = profile.entries();
        }
        session_.forward().set_profile(nullptr);
        return {};
    }

private:
    int32_t verify_max() const {
        return options_.verify.empty() ? 0 : *std::max_element(options_.verify.begin(), options_.verify.end());
    }

    // Any ids do: the work does not depend on them.
    TokenId token(int32_t position) const { return static_cast<TokenId>((int64_t{position} * 7919 + 13) % session_.vocab()); }

    Status append(cache::Sequence& sequence, int32_t n) {
        while (n > 0) {
            const int32_t chunk = std::min(n, session_.forward().limits().rows_max);
            tokens_.clear();
            for (int32_t i = 0; i < chunk; ++i) tokens_.push_back(token(sequence.length() + i));
            const model::Segment segment{&sequence, tokens_, {}, chunk};
            TRY(session_.forward().run({&segment, 1}));
            session_.forward().commit_spine(0);
            n -= chunk;
        }
        return {};
    }

    // A depth is computed once and forked for every repetition.
    Status fill_depths() {
        std::vector<int32_t> depths = options_.depths;
        std::sort(depths.begin(), depths.end());
        TRY_ASSIGN(cache::Sequence sequence, cache::Sequence::create(session_.memory(), session_.sequence().context_tokens()));
        for (const int32_t depth : depths) {
            TRY(append(sequence, depth - sequence.length()));
            filled_.emplace_back(depth, sequence.fork());
        }
        return {};
    }

    Result<double> run_once(const Test& test) {
        const auto filled =
            std::find_if(filled_.begin(), filled_.end(), [&](const auto& entry) { return entry.first == test.depth; });
        cache::Sequence sequence = filled->second.fork();
        // The first pass copies a shared page; that is set-up.
        TRY(sequence.make_writable(sequence.length(), sequence.length() + test.size));
        model::Forward& forward = session_.forward();
        const auto begin = Clock::now();
        if (test.kind == Test::Kind::prefill) {
            TRY(append(sequence, test.size));
            forward.logits(0, (test.size - 1) % forward.limits().rows_max, 1, logits_.data());
        } else if (test.kind == Test::Kind::decode) {
            for (int32_t i = 0; i < test.size; ++i) {
                TRY(append(sequence, 1));
                forward.logits(0, 0, 1, logits_.data());
            }
        } else {
            tokens_.clear();
            for (int32_t i = 0; i < test.size; ++i) tokens_.push_back(token(sequence.length() + i));
            const model::Segment segment{&sequence, tokens_, {}, 1};
            TRY(forward.run({&segment, 1}));
            forward.logits(0, 0, test.size, logits_.data());
            forward.commit_spine(0);
        }
        return seconds_since(begin);
    }

    const BenchModelOptions& options_;
    EvalSession& session_;
    std::vector<std::pair<int32_t, cache::Sequence>> filled_;
    std::vector<TokenId> tokens_;
    std::vector<float> logits_;
};

double passes_of(const Test& test) {
    switch (test.kind) {
        case Test::Kind::prefill: return std::max(1.0, test.size / 512.0);
        case Test::Kind::decode: return test.size;
        case Test::Kind::verify: return 1;
    }
    return 1;
}

struct ProfileScope {
    const Test& test;
    const ModelWork& work;
    const BenchModelReport& report;
    int32_t repetitions;
    double bytes_of_matrices;
    double macs;
    double peak_gmac_s;
};

void summarise_profile(const ProfileScope& scope, BenchModelTest& out) {
    const double n_passes = passes_of(scope.test) * scope.repetitions;
    double total = 0;
    for (const auto& entry : scope.test.profile) total += entry.wall_s;
    double matrices = 0;
    for (size_t i = 0; i < model::kWorks; ++i) {
        const model::StepProfile::Entry& entry = scope.test.profile[i];
        if (entry.wall_s == 0) continue;
        BenchModelWork work;
        work.work = model::kWorkNames[i];
        work.ms = entry.wall_s / n_passes * 1e3;
        work.share = entry.wall_s / total;
        work.idle_share = entry.idle_s / (entry.wall_s * scope.report.n_threads);
        const bool is_head = i == static_cast<size_t>(model::Work::head);
        const double uses = is_head && scope.test.kind == Test::Kind::prefill ? scope.repetitions : n_passes;
        work.gb_s = scope.work.matrix_bytes[i] * uses / entry.wall_s / 1e9;
        if (scope.work.matrix_bytes[i] > 0) matrices += entry.wall_s / scope.repetitions;
        out.profile.push_back(work);
    }
    out.matrices_share_of_bandwidth = scope.bytes_of_matrices / matrices / 1e9 / scope.report.read_gb_s;
    out.matrices_share_of_peak = scope.macs / matrices / 1e9 / scope.peak_gmac_s;
}

BenchModelTest summarise(const Test& test, const ModelWork& work, const BenchModelReport& report,
                         const BenchModelOptions& options) {
    BenchModelTest out;
    const char* prefix = test.kind == Test::Kind::prefill ? "pp" : test.kind == Test::Kind::decode ? "tg" : "verify";
    out.test = fmt::format("{}{}", prefix, test.size);
    out.depth = test.depth;
    const Spread seconds = spread_of(test.seconds);
    out.ms = {seconds.median * 1e3, seconds.min * 1e3, seconds.max * 1e3};
    out.tokens_per_s = {test.size / seconds.median, test.size / seconds.max, test.size / seconds.min};
    const double passes = passes_of(test);
    const double heads = test.kind == Test::Kind::decode ? test.size : 1;
    const double mean_length = test.depth + test.size / 2.0;
    const double bytes = passes * (work.layer_bytes + mean_length * work.kv_bytes_per_token) + heads * work.head_bytes;
    const double head_rows = test.kind == Test::Kind::prefill ? 1 : test.size;
    const double macs = test.size * work.layer_macs_per_token + head_rows * work.head_macs;
    const bool is_int8 = work.acts == kernels::Acts::a8 || work.acts == kernels::Acts::ckpt;
    out.share_of_bandwidth = bytes / seconds.median / 1e9 / report.read_gb_s;
    const double peak = is_int8 ? report.int8_gmac_s : report.float_gmac_s;
    out.share_of_peak = macs / seconds.median / 1e9 / peak;
    if (options.has_profile) {
        const double matrix_bytes = passes * work.layer_bytes + heads * work.head_bytes;
        summarise_profile({test, work, report, options.repetitions, matrix_bytes, macs, peak}, out);
    }
    return out;
}

}  // namespace

Json BenchModelReport::to_json() const {
    const auto spread = [](const Spread& s) { return Json{{"median", s.median}, {"min", s.min}, {"max", s.max}}; };
    Json list = Json::array();
    for (const BenchModelTest& test : tests) {
        Json entry = {{"test", test.test},
                      {"depth", test.depth},
                      {"tokens_per_s", spread(test.tokens_per_s)},
                      {"ms", spread(test.ms)},
                      {"share_of_bandwidth", test.share_of_bandwidth},
                      {"share_of_peak", test.share_of_peak}};
        if (!test.profile.empty()) {
            Json works = Json::array();
            for (const BenchModelWork& w : test.profile) {
                works.push_back(
                    {{"work", w.work}, {"ms", w.ms}, {"share", w.share}, {"idle_share", w.idle_share}, {"gb_s", w.gb_s}});
            }
            entry["profile"] = works;
            entry["matrices"] = {{"share_of_bandwidth", test.matrices_share_of_bandwidth},
                                 {"share_of_peak", test.matrices_share_of_peak}};
        }
        list.push_back(std::move(entry));
    }
    const auto optional = [](double value) { return value > 0 ? Json(value) : Json(); };
    return {{"machine",
             {{"cpu", cpu},
              {"tier", tier},
              {"threads", n_threads},
              {"read_gb_s", read_gb_s},
              {"float_gmac_s", float_gmac_s},
              {"int8_gmac_s", int8_gmac_s},
              {"bf16_gmac_s", optional(bf16_gmac_s)}}},
            {"acts", acts},
            {"tests", list}};
}

std::string BenchModelReport::to_table() const {
    std::string text =
        fmt::format("{}, {} kernels, activations {}, {} threads; read {:.1f} GB/s, float {:.0f} GMAC/s, int8 {:.0f} GMAC/s\n",
                    cpu, tier, acts, n_threads, read_gb_s, float_gmac_s, int8_gmac_s);
    text += fmt::format("{:<12}{:>8}{:>14}{:>24}{:>12}{:>12}\n", "test", "depth", "tokens/s", "min .. max", "bandwidth", "peak");
    for (const BenchModelTest& t : tests) {
        text += fmt::format("{:<12}{:>8}{:>14.1f}{:>24}{:>11.0f}%{:>11.0f}%\n", t.test, t.depth, t.tokens_per_s.median,
                            fmt::format("{:.1f} .. {:.1f}", t.tokens_per_s.min, t.tokens_per_s.max), 100 * t.share_of_bandwidth,
                            100 * t.share_of_peak);
    }
    for (const BenchModelTest& t : tests) {
        if (t.profile.empty()) continue;
        text += fmt::format("\n{} at depth {}, per pass; matrices alone: {:.0f}% of bandwidth, {:.0f}% of peak\n", t.test,
                            t.depth, 100 * t.matrices_share_of_bandwidth, 100 * t.matrices_share_of_peak);
        text += fmt::format("{:<12}{:>10}{:>8}{:>8}{:>8}\n", "work", "ms", "share", "idle", "GB/s");
        for (const BenchModelWork& w : t.profile) {
            text += fmt::format("{:<12}{:>10.3f}{:>7.1f}%{:>7.0f}%", w.work, w.ms, 100 * w.share, 100 * w.idle_share);
            text += w.gb_s > 0 ? fmt::format("{:>8.1f}\n", w.gb_s) : "\n";
        }
    }
    return text;
}

Result<BenchModelReport> bench_model(const BenchModelOptions& options) {
    if (options.repetitions < 1 || options.depths.empty())
        return invalid_input("bench model: at least one repetition and one depth");
    std::vector<Test> tests;
    int32_t longest = 0;
    for (const int32_t depth : options.depths) {
        for (const int32_t n : options.prompts) tests.push_back({Test::Kind::prefill, n, depth, {}});
        for (const int32_t n : options.replies) tests.push_back({Test::Kind::decode, n, depth, {}});
        for (const int32_t n : options.verify) tests.push_back({Test::Kind::verify, n, depth, {}});
    }
    if (tests.empty()) return invalid_input("bench model: no test asked for (-p, -n, -m)");
    for (const Test& test : tests) {
        const int32_t size_max = test.kind == Test::Kind::verify ? 64 : 1 << 20;
        if (test.size < 1 || test.size > size_max || test.depth < 0 || test.depth > 1 << 20) {
            return invalid_input(fmt::format("bench model: size {} at depth {} is out of range", test.size, test.depth));
        }
        longest = std::max(longest, test.depth + test.size);
    }
    TRY_ASSIGN(auto session, EvalSession::open(options.model, longest + 64, static_cast<int32_t>(options.depths.size()) + 2));
    Peaks peaks(session->model().kernels().isa, session->pool());
    TRY(peaks.reserve());
    Bench bench(options, *session);
    TRY(bench.run(tests, peaks));
    if (options.has_profile) TRY(bench.run_profiles(tests));
    BenchModelReport report;
    report.cpu = cpu_name();
    report.tier = kernels::to_string(session->model().kernels().isa);
    report.acts = engine::to_string(work_of(session->model()).acts);
    report.n_threads = session->pool().n_threads();
    report.read_gb_s = peaks.read_gb_s();
    report.float_gmac_s = peaks.float_gmac_s();
    report.int8_gmac_s = peaks.int8_gmac_s();
    for (const Test& test : tests) report.tests.push_back(summarise(test, work_of(session->model()), report, options));
    return report;
}

}  // namespace espalier::probe
