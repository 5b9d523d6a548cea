#include <algorithm>

#include "model/layers/layers.h"

namespace espalier::model {
namespace {

void norm_block(const LayerContext& context, const std::vector<float>& weight, const float* x, float* y, int64_t n_rows) {
    kernels::NormArgs args;
    args.n = static_cast<int64_t>(weight.size());
    args.x = x;
    args.x_stride = args.n;
    args.weight = weight.data();
    args.y = y;
    args.y_stride = args.n;
    args.n_rows = n_rows;
    args.eps = context.model.config().rms_eps;
    context.model.kernels().rmsnorm(args);
}

// Columns [begin, end) of gate and up of all rows, their gated product, and its conversion for the down projection.
struct GatePart {
    int64_t begin;
    int64_t end;
};
void run_gate_part(const LayerContext& context, const MlpWeights& mlp, const kernels::MatmulRows& inner, const GatePart& part) {
    const kernels::MatmulRows outer = outer_rows(context, mlp.gate_up);
    const int64_t width = context.model.config().intermediate;
    for (const int64_t column : {int64_t{0}, width}) {
        mlp.gate_up.multiply_panels(0, outer, (column + part.begin) / kernels::kPanelRows,
                                    (column + part.end) / kernels::kPanelRows);
    }
    float* out = context.work.mixed + context.pass.segments().front().first_new * width;
    for (int64_t row = 0; row < outer.m; ++row) {
        const float* gate = outer.y + row * outer.y_stride + part.begin;
        context.model.kernels().swiglu({gate, gate + width, out + row * width + part.begin, part.end - part.begin});
    }
    mlp.down.prepare(inner, {0, outer.m, part.begin, part.end});
}

void run_gate(const LayerContext& context, const MlpWeights& mlp, const kernels::MatmulRows& inner) {
    const int64_t width = context.model.config().intermediate;
    const int64_t columns = mlp.down.input_columns();
    if (mlp.gate_up.matrices().size() == 1 && columns > 0) {
        const int64_t part = inner.m <= kFewRows ? std::max<int64_t>(columns, 64) : 128;
        context.pool.run((width + part - 1) / part, [&](int64_t task, int) {
            run_gate_part(context, mlp, inner, {task * part, std::min((task + 1) * part, width)});
        });
        return;
    }
    const kernels::MatmulRows outer = outer_rows(context, mlp.gate_up);
    mlp.gate_up.multiply(outer, context.pool);
    const int32_t first = context.pass.segments().front().first_new;
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t row = begin; row < end; ++row) {
            const float* gate = context.work.projected + row * 2 * width;
            context.model.kernels().swiglu({gate, gate + width, context.work.mixed + row * width, width});
        }
        mlp.down.prepare_rows(inner, begin - first, end - first);
    });
}

}  // namespace

kernels::MatmulRows outer_rows(const LayerContext& context, const LinearGroup& group) {
    Workspace& w = context.work;
    const int64_t first = context.pass.segments().front().first_new;
    const int64_t k = group.k();
    return {w.normed + first * k, k, context.pass.n_rows() - first, w.projected + first * group.width(), group.width(),
            w.matmul_scratch};
}

kernels::MatmulRows inner_rows(const LayerContext& context, const LinearGroup& group) {
    Workspace& w = context.work;
    const int64_t first = context.pass.segments().front().first_new;
    const int64_t k = group.k();
    return {w.mixed + first * k, k, context.pass.n_rows() - first, w.x + first * group.width(), group.width(), w.inner_scratch,
            kernels::Store::add};
}

void prepare_rows(const LayerContext& context, const LinearGroup& group, const kernels::MatmulRows& rows) {
    const int32_t first = context.pass.segments().front().first_new;
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) { group.prepare_rows(rows, begin - first, end - first); });
}

void norm_rows(const LayerContext& context, const std::vector<float>& weight, const float* x, float* y) {
    const auto n = static_cast<int64_t>(weight.size());
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        norm_block(context, weight, x + begin * n, y + begin * n, end - begin);
    });
}

void norm_rows_into(const LayerContext& context, const std::vector<float>& weight, const LinearGroup& group) {
    Workspace& w = context.work;
    const kernels::MatmulRows rows = outer_rows(context, group);
    const int64_t n = group.k();
    const int32_t first = context.pass.segments().front().first_new;
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        norm_block(context, weight, w.x + begin * n, w.normed + begin * n, end - begin);
        group.prepare_rows(rows, begin - first, end - first);
    });
}

void run_mlp(const LayerContext& context, const LayerWeights& layer) {
    const int64_t hidden = context.model.config().hidden;
    const int64_t width = context.model.config().intermediate;
    norm_rows_into(context, layer.post_norm, layer.mlp.gate_up);
    mark(context, Work::norm);
    observe(context, ActivationSite::mlp_in, context.work.normed, hidden, hidden);
    const kernels::MatmulRows inner = inner_rows(context, layer.mlp.down);
    run_gate(context, layer.mlp, inner);
    mark(context, Work::mlp_in);
    observe(context, ActivationSite::mlp_out, context.work.mixed, width, width);
    layer.mlp.down.multiply(inner, context.pool);
    mark(context, Work::mlp_out);
}

}  // namespace espalier::model
