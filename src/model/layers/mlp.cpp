#include <algorithm>

#include "model/layers/layers.h"

namespace espalier::model {

void norm_rows(const LayerContext& context, const std::vector<float>& weight, const float* x, float* y) {
    const int64_t n = static_cast<int64_t>(weight.size());
    const float eps = context.model.config().rms_eps;
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        kernels::NormArgs args;
        args.x = x + begin * n;
        args.x_stride = n;
        args.weight = weight.data();
        args.y = y + begin * n;
        args.y_stride = n;
        args.n_rows = end - begin;
        args.n = n;
        args.eps = eps;
        context.model.kernels().rmsnorm(args);
    });
}

void run_mlp(const LayerContext& context, const LayerWeights& layer) {
    Workspace& w = context.work;
    const int32_t first = context.pass.segments().front().first_new;
    const int32_t m = context.pass.n_rows() - first;
    const int64_t hidden = context.model.config().hidden;
    const int64_t width = context.model.config().intermediate;
    norm_rows(context, layer.post_norm, w.x, w.normed);
    observe(context, ActivationSite::mlp_in, w.normed, hidden, hidden);
    layer.mlp.gate_up.apply(w.normed + first * hidden, hidden, m, w.projected + first * 2 * width, 2 * width, w.matmul_scratch,
                            context.pool);
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        for (int32_t row = begin; row < end; ++row) {
            const float* gate = w.projected + row * 2 * width;
            context.model.kernels().swiglu({gate, gate + width, w.mixed + row * width, width});
        }
    });
    observe(context, ActivationSite::mlp_out, w.mixed, width, width);
    layer.mlp.down.apply(w.mixed + first * width, width, m, w.output + first * hidden, hidden, w.matmul_scratch, context.pool);
    for_row_blocks(context, [&](int32_t begin, int32_t end, int) {
        context.model.kernels().add({w.x + begin * hidden, w.output + begin * hidden, (end - begin) * hidden});
    });
}

}  // namespace espalier::model
