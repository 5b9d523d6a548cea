#include <algorithm>

#include "kernels/matmul/pack.h"

namespace espalier::kernels {

void matmul(const PackedMatrix& weight, const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride,
            std::byte* scratch, ThreadPool& pool) {
    const MatmulKernel& kernel = weight.kernel();
    MatmulArgs args;
    args.weight = &weight.view();
    args.m = m;
    args.y = y;
    args.y_stride = y_stride;
    if (kernel.prepare == nullptr) {
        args.prepared = x;
        args.prepared_stride = x_stride * static_cast<int64_t>(sizeof(float));
    } else {
        args.prepared = scratch;
        args.prepared_stride = kernel.prepared_row_bytes(weight.k());
        constexpr int64_t kRowsPerTask = 4;
        pool.run((m + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
            const int64_t row = task * kRowsPerTask;
            PrepareArgs prepare;
            prepare.weight = args.weight;
            prepare.x = x + row * x_stride;
            prepare.x_stride = x_stride;
            prepare.m = std::min(kRowsPerTask, m - row);
            prepare.prepared = scratch + row * args.prepared_stride;
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
