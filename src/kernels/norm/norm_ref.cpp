#include "kernels/norm/norm_ref.h"

#include <cmath>

namespace espalier::kernels {
namespace {

double sum_of_squares(const float* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
    return sum;
}

}  // namespace

std::vector<double> rmsnorm_ref(const NormArgs& args) {
    std::vector<double> y;
    for (int64_t row = 0; row < args.n_rows; ++row) {
        const float* x = args.x + row * args.x_stride;
        const double factor = 1.0 / std::sqrt(sum_of_squares(x, args.n) / static_cast<double>(args.n) + args.eps);
        for (int64_t i = 0; i < args.n; ++i) y.push_back(x[i] * factor * args.weight[i]);
    }
    return y;
}

std::vector<double> gated_rmsnorm_ref(const NormArgs& args) {
    std::vector<double> y = rmsnorm_ref(args);
    for (int64_t row = 0; row < args.n_rows; ++row) {
        for (int64_t i = 0; i < args.n; ++i) {
            const double z = args.z[row * args.z_stride + i];
            y[static_cast<size_t>(row * args.n + i)] *= z / (1.0 + std::exp(-z));
        }
    }
    return y;
}

std::vector<double> l2norm_ref(const NormArgs& args) {
    std::vector<double> y;
    for (int64_t row = 0; row < args.n_rows; ++row) {
        const float* x = args.x + row * args.x_stride;
        const double factor = args.scale / std::sqrt(sum_of_squares(x, args.n) + args.eps);
        for (int64_t i = 0; i < args.n; ++i) y.push_back(x[i] * factor);
    }
    return y;
}

}  // namespace espalier::kernels
