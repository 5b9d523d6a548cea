#include <algorithm>

#include "kernels/matmul/pack.h"

namespace espalier::kernels {

void matmul(const PackedMatrix& weight, const MatmulRows& rows, ThreadPool& pool) {
    const MatmulKernel& kernel = weight.kernel();
    MatmulArgs args;
    args.weight = &weight.view();
    args.m = rows.m;
    args.y = rows.y;
    args.y_stride = rows.y_stride;
    if (kernel.prepare == nullptr) {
        args.prepared = rows.x;
        args.prepared_stride = rows.x_stride * static_cast<int64_t>(sizeof(float));
    } else {
        args.prepared = rows.scratch;
        args.prepared_stride = kernel.prepared_row_bytes(weight.k());
        constexpr int64_t kRowsPerTask = 4;
        pool.run((rows.m + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
            const int64_t row = task * kRowsPerTask;
            PrepareArgs prepare;
            prepare.weight = args.weight;
            prepare.x = rows.x + row * rows.x_stride;
            prepare.x_stride = rows.x_stride;
            prepare.m = std::min(kRowsPerTask, rows.m - row);
            prepare.prepared = rows.scratch + row * args.prepared_stride;
            kernel.prepare(prepare);
        });
    }
    // Tasks are whole groups of panels (a kernel shares row loads within 8) and a few per thread, so that a slow thread
    // leaves work to the others.
    constexpr int64_t kPanelGroup = 8;
    constexpr int64_t kTasksPerThread = 6;
    const int64_t n_groups = (weight.n_panels() + kPanelGroup - 1) / kPanelGroup;
    const int64_t n_tasks = pool.n_threads() == 1 ? 1 : std::min<int64_t>(n_groups, kTasksPerThread * pool.n_threads());
    pool.run(n_tasks, [&](int64_t task, int) {
        MatmulArgs part = args;
        part.panel_begin = task * n_groups / n_tasks * kPanelGroup;
        part.panel_end = std::min(weight.n_panels(), (task + 1) * n_groups / n_tasks * kPanelGroup);
        kernel.run(part);
    });
}

size_t matmul_scratch_bytes(const PackedMatrix& weight, int64_t m) {
    const MatmulKernel& kernel = weight.kernel();
    return kernel.prepared_row_bytes == nullptr ? 0 : static_cast<size_t>(m * kernel.prepared_row_bytes(weight.k()));
}

}  // namespace espalier::kernels
