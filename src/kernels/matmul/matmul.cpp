#include <algorithm>

#include "base/check.h"
#include "kernels/matmul/pack.h"

namespace espalier::kernels {

bool same_inputs(const PackedMatrix& a, const PackedMatrix& b) {
    return a.k() == b.k() && a.kernel().prepare == b.kernel().prepare && a.view().input_scale == b.view().input_scale;
}

void prepare_part(const PackedMatrix& weight, const MatmulRows& rows, const InputPart& part) {
    const MatmulKernel& kernel = weight.kernel();
    if (kernel.prepare == nullptr || part.row_begin >= part.row_end) return;
    DCHECK(part.k_begin == 0 || (kernel.input_columns > 0 && part.k_begin % kernel.input_columns == 0),
           "whole blocks of columns");
    DCHECK(part.k_end == weight.k() || (kernel.input_columns > 0 && part.k_end % kernel.input_columns == 0),
           "whole blocks of columns");
    kernel.prepare({.weight = &weight.view(),
                    .x = rows.x,
                    .x_stride = rows.x_stride,
                    .m = rows.m,
                    .row_begin = part.row_begin,
                    .row_end = part.row_end,
                    .k_begin = part.k_begin,
                    .k_end = part.k_end,
                    .prepared = rows.scratch});
}

void multiply_panels(const PackedMatrix& weight, const MatmulRows& rows, int64_t panel_begin, int64_t panel_end) {
    const MatmulKernel& kernel = weight.kernel();
    MatmulArgs args;
    args.weight = &weight.view();
    args.m = rows.m;
    args.y = rows.y;
    args.y_stride = rows.y_stride;
    args.store = rows.store;
    args.panel_begin = panel_begin;
    args.panel_end = panel_end;
    if (kernel.prepare == nullptr) {
        args.prepared = rows.x;
        args.prepared_stride = rows.x_stride * static_cast<int64_t>(sizeof(float));
    } else {
        args.prepared = rows.scratch;
        args.prepared_stride = kernel.prepared_row_bytes(weight.k());
    }
    kernel.run(args);
}

int64_t panels_per_task(const PackedMatrix& weight, int64_t m, int64_t n_threads) {
    // Kernels walk groups of up to 8 panels with all rows; integer ones that keep few rows in L1 anyway gain nothing from it.
    // Small tasks end together, whichever thread is slower: a few for each.
    constexpr int64_t kGroup = 8;
    constexpr int64_t kTasksPerThread = 6;
    const bool is_integer = weight.kernel().prepared_row_bytes != nullptr && weight.kernel().input_columns == 64;
    int64_t panels = is_integer && m <= 6 ? 2 : kGroup;
    while (panels > 2 && weight.n_panels() < panels * kTasksPerThread * n_threads) panels /= 2;
    return panels;
}

void matmul(const PackedMatrix& weight, const MatmulRows& rows, ThreadPool& pool) {
    if (weight.kernel().prepare != nullptr) {
        constexpr int64_t kRowsPerTask = 4;
        pool.run((rows.m + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
            const int64_t row = task * kRowsPerTask;
            prepare_part(weight, rows, {row, std::min(row + kRowsPerTask, rows.m), 0, weight.k()});
        });
    }
    const int64_t panels = panels_per_task(weight, rows.m, pool.n_threads());
    pool.run((weight.n_panels() + panels - 1) / panels, [&](int64_t task, int) {
        multiply_panels(weight, rows, task * panels, std::min((task + 1) * panels, weight.n_panels()));
    });
}

size_t matmul_scratch_bytes(const PackedMatrix& weight, int64_t m) {
    const MatmulKernel& kernel = weight.kernel();
    if (kernel.prepared_row_bytes == nullptr) return 0;
    return (static_cast<size_t>(m * kernel.prepared_row_bytes(weight.k())) + 63) / 64 * 64;
}

}  // namespace espalier::kernels
