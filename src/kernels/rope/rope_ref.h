// rope.h in double, for one head.
#pragma once

#include <span>
#include <vector>

namespace espalier::kernels {

// x: the head's values; cos, sin: [n_pairs].
std::vector<double> rope_ref(std::span<const float> x, std::span<const float> cos, std::span<const float> sin);

}  // namespace espalier::kernels
