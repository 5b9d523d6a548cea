// attention.h in double: a plain softmax over the visible keys, without blocks or running maxima.
#pragma once

#include <span>
#include <vector>

namespace espalier::kernels {

// q: [head_dim]; keys, values: [n_keys, head_dim]. Returns [head_dim].
std::vector<double> attention_ref(std::span<const float> q, std::span<const float> keys, std::span<const float> values,
                                  double v_scale);

}  // namespace espalier::kernels
