// matmul.h in double: y = x W^T.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier::kernels {

// x: [m, k], w: [n, k]. Returns [m, n].
std::vector<double> matmul_ref(std::span<const float> x, std::span<const float> w, int64_t m, int64_t n, int64_t k);

}  // namespace espalier::kernels
