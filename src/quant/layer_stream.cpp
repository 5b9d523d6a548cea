#include "quant/layer_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/gather/gather.h"
#include "model/mtp.h"
#include "quant/recipe.h"

namespace espalier::quant {
namespace {

constexpr int32_t kRowsMax = 512;

model::ModelPart no_part() {
    return {0, 0, false, false, false};
}

}  // namespace

// A part of the model with the memory of one sequence at a time.
class LayerStream::Runner {
public:
    static Result<std::unique_ptr<Runner>> create(std::unique_ptr<const model::Model> model, int64_t context, ThreadPool& pool) {
        std::unique_ptr<Runner> runner(new Runner());
        runner->model_ = std::move(model);
        const auto context_tokens = static_cast<int32_t>(context);
        const int32_t n_pages = context_tokens / cache::kPageTokens + 4;
        TRY_ASSIGN(cache::Memory memory, cache::Memory::create(runner->model_->state_shape(), {n_pages, 3}));
        runner->memory_ = std::make_unique<cache::Memory>(std::move(memory));
        model::PassLimits limits;
        limits.rows_max = std::min(kRowsMax, context_tokens);
        limits.context_tokens = context_tokens;
        TRY_ASSIGN(runner->forward_, model::Forward::create(*runner->model_, *runner->memory_, pool, limits));
        return runner;
    }

    const model::Model& model() const { return *model_; }
    model::Forward& forward() { return *forward_; }
    Result<cache::Sequence> new_sequence() { return cache::Sequence::create(*memory_, forward_->limits().context_tokens); }

    // body(begin, n) over the pieces of a sequence that fit one pass.
    template <class Body>
    Status for_pieces(size_t length, const Body& body) {
        const auto rows_max = static_cast<size_t>(forward_->limits().rows_max);
        for (size_t begin = 0; begin < length; begin += rows_max) TRY(body(begin, std::min(rows_max, length - begin)));
        return {};
    }

private:
    Runner() = default;
    std::unique_ptr<const model::Model> model_;
    std::unique_ptr<cache::Memory> memory_;
    std::unique_ptr<model::Forward> forward_;
};

Result<std::unique_ptr<const model::Model>> LayerStream::load(const model::ModelPart& part) const {
    model::LoadOptions options;
    options.acts = options_.acts;
    options.isa = options_.isa;
    options.part = part;
    TRY_ASSIGN(auto checkpoint, checkpoint::Checkpoint::open(options_.folder));
    return model::Model::load(std::move(checkpoint), options, pool_);
}

Result<std::unique_ptr<const model::Model>> LayerStream::load_head() const {
    model::ModelPart part = no_part();
    part.has_head = true;
    return load(part);
}

Status LayerStream::embed(RowFile& out) {
    model::ModelPart part = no_part();
    part.has_embedding = true;
    TRY_ASSIGN(const auto model, load(part));
    const auto hidden = static_cast<size_t>(model->config().hidden);
    std::vector<float> rows;
    for (size_t s = 0; s < tokens_.sequences.size(); ++s) {
        const std::vector<TokenId>& ids = tokens_.sequences[s];
        rows.resize(ids.size() * hidden);
        for (size_t i = 0; i < ids.size(); ++i) model->embed(ids[i], rows.data() + i * hidden);
        TRY(out.write(tokens_.row_begin(s), rows));
    }
    return out.flush();
}

Status LayerStream::run_layer(int32_t layer, const RowFile& in, RowFile& out, Maxima* maxima) {
    model::ModelPart part = no_part();
    part.layer_begin = layer;
    part.layer_end = layer + 1;
    TRY_ASSIGN(auto model, load(part));
    TRY_ASSIGN(auto runner, Runner::create(std::move(model), tokens_.longest(), pool_));
    if (maxima != nullptr) maxima->set_layer(fmt::format("layers.{}", layer));
    const auto hidden = static_cast<size_t>(runner->model().config().hidden);
    std::vector<float> rows;
    for (size_t s = 0; s < tokens_.sequences.size(); ++s) {
        runner->forward().set_observer(s < tokens_.n_calibration ? maxima : nullptr);
        TRY_ASSIGN(cache::Sequence sequence, runner->new_sequence());
        const int64_t first = tokens_.row_begin(s);
        const auto run_piece = [&](size_t begin, size_t n) -> Status {
            rows.resize(n * hidden);
            TRY(in.read(first + static_cast<int64_t>(begin), rows));
            TRY(runner->forward().run_layer(0, sequence, rows));
            runner->forward().commit_spine(0);
            return out.write(first + static_cast<int64_t>(begin), rows);
        };
        TRY(runner->for_pieces(tokens_.sequences[s].size(), run_piece));
    }
    return out.flush();
}

Status LayerStream::run_final_norm(const RowFile& in, RowFile& out, Maxima* maxima) {
    TRY_ASSIGN(const auto model, load(no_part()));
    const int64_t hidden = model->config().hidden;
    std::vector<float> rows;
    for (size_t s = 0; s < tokens_.sequences.size(); ++s) {
        const auto n = static_cast<int64_t>(tokens_.sequences[s].size());
        rows.resize(static_cast<size_t>(n * hidden));
        TRY(in.read(tokens_.row_begin(s), rows));
        kernels::NormArgs args;
        args.x = rows.data();
        args.y = rows.data();
        args.x_stride = args.y_stride = hidden;
        args.weight = model->final_norm().data();
        args.n_rows = n;
        args.n = hidden;
        args.eps = model->config().rms_eps;
        model->kernels().rmsnorm(args);
        if (maxima != nullptr && s < tokens_.n_calibration) maxima->add(std::string(kHeadKey), {rows.data(), hidden, n, hidden});
        TRY(out.write(tokens_.row_begin(s), rows));
    }
    return out.flush();
}

Status LayerStream::run_mtp(const RowFile& final_rows, Maxima& maxima) {
    model::ModelPart part = no_part();
    part.has_embedding = true;
    part.has_mtp = true;
    TRY_ASSIGN(auto model, load(part));
    TRY_ASSIGN(auto runner, Runner::create(std::move(model), tokens_.longest(), pool_));
    model::Forward& trunk = runner->forward();
    TRY_ASSIGN(auto head, model::MtpHead::create(trunk));
    maxima.set_layer("mtp.layers.0");
    trunk.set_observer(&maxima);
    std::vector<float> rows;
    for (size_t s = 0; s < tokens_.n_calibration; ++s) {
        // The slot of the last token would need the token after it.
        const std::span<const TokenId> ids(tokens_.sequences[s]);
        TRY_ASSIGN(cache::Sequence sequence, runner->new_sequence());
        const auto run_piece = [&](size_t begin, size_t n) -> Status {
            // A trunk of no layers: only makes the tokens part of the sequence.
            const model::Segment segment{&sequence, ids.subspan(begin, n), {}, static_cast<int32_t>(n)};
            TRY(trunk.run({&segment, 1}));
            trunk.commit_spine(0);
            rows.resize(n * static_cast<size_t>(final_rows.width()));
            TRY(final_rows.read(tokens_.row_begin(s) + static_cast<int64_t>(begin), rows));
            head->start(sequence);
            TRY(head->extend(ids.subspan(begin + 1, n), rows.data()));
            return head->keep(static_cast<int32_t>(n));
        };
        TRY(runner->for_pieces(ids.size() - 1, run_piece));
    }
    return {};
}

}  // namespace espalier::quant
