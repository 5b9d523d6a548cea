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
        group.width_ += matrix.n();
        group.matrices_.push_back(std::move(matrix));
        begin = end;
    }
    return group;
}

size_t LinearGroup::bytes() const {
    size_t bytes = 0;
    for (const auto& matrix : matrices_) bytes += matrix.bytes();
    return bytes;
}

size_t LinearGroup::scratch_bytes(int64_t m) const {
    size_t bytes = 0;
    for (const auto& matrix : matrices_) bytes = std::max(bytes, kernels::matmul_scratch_bytes(matrix, m));
    return bytes;
}

void LinearGroup::apply(const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride, std::byte* scratch,
                        ThreadPool& pool) const {
    for (const auto& matrix : matrices_) {
        kernels::matmul(matrix, {x, x_stride, m, y, y_stride, scratch}, pool);
        y += matrix.n();
    }
}

}  // namespace espalier::model
