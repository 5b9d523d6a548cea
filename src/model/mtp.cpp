#include "model/mtp.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace espalier::model {

Result<std::unique_ptr<MtpHead>> MtpHead::create(Forward& trunk) {
    CHECK(trunk.model().mtp() != nullptr, "the model has an MTP head");
    const size_t floats = static_cast<size_t>(trunk.limits().rows_max) * static_cast<size_t>(trunk.model().config().hidden);
    TRY_ASSIGN(Buffer output, Buffer::allocate(floats * sizeof(float)));
    return std::unique_ptr<MtpHead>(new MtpHead(trunk, std::move(output)));
}

MtpHead::MtpHead(Forward& trunk, Buffer output)
    : trunk_(trunk), weights_(*trunk.model().mtp()), pass_(trunk.limits()), output_(std::move(output)) {
    tokens_.reserve(static_cast<size_t>(trunk.limits().rows_max));
    for (int32_t row = 0; row < trunk.limits().rows_max; ++row) rows_.push_back(row);
}

void MtpHead::start(cache::Sequence& sequence) {
    sequence_ = &sequence;
    tokens_.clear();
}

Status MtpHead::extend(std::span<const TokenId> tokens, const float* hidden_rows) {
    const auto first_new = static_cast<int32_t>(tokens_.size());
    if (tokens_.size() + tokens.size() > static_cast<size_t>(pass_.limits().rows_max)) {
        return exhausted(fmt::format("the MTP head takes {} nodes at a time", pass_.limits().rows_max));
    }
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    const Segment segment{sequence_, tokens_, {}, static_cast<int32_t>(tokens_.size())};
    TRY(pass_.plan({&segment, 1}, Pass::Base::mtp, first_new));
    Workspace& w = trunk_.workspace();
    const Model& model = trunk_.model();
    const LayerContext context{model, pass_, w, trunk_.memory(), trunk_.pool(), {}, trunk_.observer()};
    const int64_t hidden = model.config().hidden;
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t row = begin; row < end; ++row) {
            float* concat = w.concat + row * 2 * hidden;
            model.embed(tokens_[static_cast<size_t>(row)], concat);
            std::memcpy(concat + hidden, hidden_rows + (row - first_new) * hidden, static_cast<size_t>(hidden) * sizeof(float));
            kernels::NormArgs norm{concat, hidden, nullptr, 0,      weights_.embedding_norm.data(),
                                   concat, hidden, 1,       hidden, model.config().rms_eps};
            model.kernels().rmsnorm(norm);
            norm.x = concat + hidden;
            norm.y = concat + hidden;
            norm.weight = weights_.hidden_norm.data();
            model.kernels().rmsnorm(norm);
        }
    });
    observe(context, ActivationSite::mtp_fc, w.concat, 2 * hidden, 2 * hidden);
    const int32_t m = pass_.n_rows() - first_new;
    weights_.fc.apply(w.concat + first_new * 2 * hidden, 2 * hidden, m, w.x + first_new * hidden, hidden, w.matmul_scratch,
                      trunk_.pool());
    fill_rotation(context);
    run_attention(context, weights_.layer);
    run_mlp(context, weights_.layer);
    norm_rows(context, weights_.norm, w.x, output_.as<float>());
    return {};
}

const float* MtpHead::output(int32_t node) const {
    return output_.as<float>() + static_cast<int64_t>(node) * trunk_.model().config().hidden;
}

void MtpHead::logits(int32_t node_begin, int32_t n_nodes, float* out) {
    const ModelConfig& config = trunk_.model().config();
    trunk_.model().head().apply(output(node_begin), config.hidden, n_nodes, out, config.vocab, trunk_.workspace().matmul_scratch,
                                trunk_.pool());
}

void MtpHead::logits_of(int32_t node, std::span<const PanelRange> panels, float* out) {
    trunk_.model().head().apply_panels(output(node), out, panels, trunk_.workspace().matmul_scratch, trunk_.pool());
}

Status MtpHead::keep(int32_t n_nodes) {
    CHECK(n_nodes >= 0 && n_nodes <= static_cast<int32_t>(tokens_.size()), "only computed slots can be kept");
    const int32_t begin = sequence_->mtp_length();
    TRY(sequence_->make_writable(begin, begin + n_nodes));
    const LayerContext context{trunk_.model(), pass_, trunk_.workspace(), trunk_.memory(), trunk_.pool(), {}};
    commit_kv(context, weights_.layer.kv_index, *sequence_, begin, std::span(rows_).first(static_cast<size_t>(n_nodes)));
    sequence_->set_mtp_length(begin + n_nodes);
    return {};
}

}  // namespace espalier::model
