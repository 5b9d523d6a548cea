#include "kernels/act/act_ref.h"

#include <cmath>

namespace espalier::kernels {

double silu_ref(double x) {
    return x / (1.0 + std::exp(-x));
}
double sigmoid_ref(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}
double softplus_ref(double x) {
    return x > 20 ? x : std::log1p(std::exp(x));
}

}  // namespace espalier::kernels
