#include "kernels/matmul/matmul_ref.h"

namespace espalier::kernels {

std::vector<double> matmul_ref(std::span<const float> x, std::span<const float> w, int64_t m, int64_t n, int64_t k) {
    std::vector<double> y;
    for (int64_t row = 0; row < m; ++row) {
        for (int64_t output = 0; output < n; ++output) {
            double sum = 0;
            for (int64_t i = 0; i < k; ++i) {
                sum += static_cast<double>(x[static_cast<size_t>(row * k + i)]) * w[static_cast<size_t>(output * k + i)];
            }
            y.push_back(sum);
        }
    }
    return y;
}

}  // namespace espalier::kernels
