#include "kernels/rope/rope_ref.h"

namespace espalier::kernels {

std::vector<double> rope_ref(std::span<const float> x, std::span<const float> cos, std::span<const float> sin) {
    std::vector<double> y(x.begin(), x.end());
    const size_t n = cos.size();
    for (size_t i = 0; i < n; ++i) {
        y[i] = static_cast<double>(x[i]) * cos[i] - static_cast<double>(x[i + n]) * sin[i];
        y[i + n] = static_cast<double>(x[i + n]) * cos[i] + static_cast<double>(x[i]) * sin[i];
    }
    return y;
}

}  // namespace espalier::kernels
