#include <algorithm>

#include "base/check.h"
#include "model/model.h"

namespace espalier::model {
namespace {

// The static activation scale of a view, 0 if it has none.
float input_scale(const WeightView& view) {
    return view.row_scales.empty() ? 0.0f : view.row_scales.front().input_scale;
}

// Fused rows are converted once, so they must be converted the same way.
bool can_stack(const WeightView& a, const WeightView& b, kernels::Acts acts) {
    if (a.layout != b.layout || a.k != b.k || a.activations != b.activations) return false;
    return acts != kernels::Acts::ckpt || input_scale(a) == input_scale(b);
}

}  // namespace

Result<LinearGroup> LinearGroup::pack(std::vector<WeightView> views, kernels::Acts acts, kernels::Isa isa, ThreadPool& pool) {
    CHECK(!views.empty(), "a group has at least one module");
    LinearGroup group;
    size_t begin = 0;
    while (begin < views.size()) {
        size_t end = begin + 1;
        while (end < views.size() && can_stack(views[begin], views[end], acts)) ++end;
        TRY_ASSIGN(kernels::PackedMatrix matrix,
                   kernels::PackedMatrix::pack(std::span(views).subspan(begin, end - begin), acts, isa, pool));
        group.add(std::move(matrix));
        begin = end;
    }
    return group;
}

void LinearGroup::add(kernels::PackedMatrix matrix) {
    Part part{width_, row_scratch_bytes_, true};
    for (size_t i = 0; i < matrices_.size() && part.is_first; ++i) {
        if (kernels::same_inputs(matrices_[i], matrix)) part = {width_, parts_[i].scratch_begin, false};
    }
    const kernels::MatmulKernel& kernel = matrix.kernel();
    if (part.is_first && kernel.prepared_row_bytes != nullptr) {
        row_scratch_bytes_ += (kernel.prepared_row_bytes(matrix.k()) + 63) / 64 * 64;
    }
    const bool has_whole_rows = kernel.input_columns == 0 || (!matrices_.empty() && input_columns_ == 0);
    input_columns_ = has_whole_rows ? 0 : std::max(input_columns_, kernel.input_columns);
    reads_floats_ = reads_floats_ || kernel.prepare == nullptr;
    width_ += matrix.n();
    parts_.push_back(part);
    matrices_.push_back(std::move(matrix));
}

size_t LinearGroup::bytes() const {
    size_t bytes = 0;
    for (const auto& matrix : matrices_) bytes += matrix.bytes();
    return bytes;
}

size_t LinearGroup::scratch_bytes(int64_t m) const {
    return static_cast<size_t>(m * row_scratch_bytes_);
}

kernels::MatmulRows LinearGroup::rows_of(size_t matrix, const kernels::MatmulRows& rows) const {
    kernels::MatmulRows own = rows;
    own.y += parts_[matrix].column;
    own.scratch += parts_[matrix].scratch_begin * rows.m;
    return own;
}

void LinearGroup::prepare(const kernels::MatmulRows& rows, const kernels::InputPart& part) const {
    for (size_t i = 0; i < matrices_.size(); ++i) {
        if (parts_[i].is_first) kernels::prepare_part(matrices_[i], rows_of(i, rows), part);
    }
}

void LinearGroup::multiply_panels(size_t matrix, const kernels::MatmulRows& rows, int64_t begin, int64_t end) const {
    kernels::multiply_panels(matrices_[matrix], rows_of(matrix, rows), begin, end);
}

void LinearGroup::multiply(const kernels::MatmulRows& rows, ThreadPool& pool) const {
    const auto panels_of = [&](const kernels::PackedMatrix& matrix) {
        return kernels::panels_per_task(matrix, rows.m, pool.n_threads());
    };
    const auto tasks_of = [&](const kernels::PackedMatrix& matrix) {
        return (matrix.n_panels() + panels_of(matrix) - 1) / panels_of(matrix);
    };
    int64_t n_tasks = 0;
    for (const auto& matrix : matrices_) n_tasks += tasks_of(matrix);
    pool.run(n_tasks, [&](int64_t task, int) {
        size_t i = 0;
        for (; task >= tasks_of(matrices_[i]); ++i) task -= tasks_of(matrices_[i]);
        const int64_t panels = panels_of(matrices_[i]);
        multiply_panels(i, rows, task * panels, std::min((task + 1) * panels, matrices_[i].n_panels()));
    });
}

void LinearGroup::apply(const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride, std::byte* scratch,
                        ThreadPool& pool) const {
    const kernels::MatmulRows rows{x, x_stride, m, y, y_stride, scratch};
    constexpr int64_t kRowsPerTask = 4;
    pool.run((rows.m + kRowsPerTask - 1) / kRowsPerTask,
             [&](int64_t task, int) { prepare_rows(rows, task * kRowsPerTask, std::min((task + 1) * kRowsPerTask, rows.m)); });
    multiply(rows, pool);
}

void LinearGroup::apply_panels(const float* x, float* y, std::span<const PanelRange> panels, std::byte* scratch,
                               ThreadPool& pool) const {
    CHECK(matrices_.size() == 1, "panels are counted in one matrix");
    const kernels::MatmulRows rows{x, k(), 1, y, width_, scratch};
    prepare_rows(rows, 0, 1);
    int64_t n_panels = 0;
    for (const PanelRange& range : panels) n_panels += range.end - range.begin;
    const int64_t per_task = kernels::panels_per_task(matrices_.front(), 1, pool.n_threads());
    pool.run((n_panels + per_task - 1) / per_task, [&](int64_t task, int) {
        // The task's share, counted through the ranges.
        int64_t skip = task * per_task;
        int64_t left = per_task;
        for (const PanelRange& range : panels) {
            const int64_t begin = range.begin + skip;
            const int64_t end = std::min(range.end, begin + left);
            skip = std::max<int64_t>(0, begin - range.end);
            if (begin >= end) continue;
            multiply_panels(0, rows, begin, end);
            left -= end - begin;
            if (left == 0) return;
        }
    });
}

}  // namespace espalier::model
