#include "kernels/attention/attention_ref.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace espalier::kernels {

std::vector<double> attention_ref(std::span<const float> q, std::span<const float> keys, std::span<const float> values,
                                  double v_scale) {
    const size_t head_dim = q.size();
    const size_t n_keys = keys.size() / head_dim;
    std::vector<double> scores(n_keys, 0.0);
    for (size_t j = 0; j < n_keys; ++j) {
        for (size_t d = 0; d < head_dim; ++d) scores[j] += static_cast<double>(q[d]) * keys[j * head_dim + d];
    }
    const double highest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    std::vector<double> out(head_dim, 0.0);
    for (size_t j = 0; j < n_keys; ++j) {
        const double weight = std::exp(scores[j] - highest);
        total += weight;
        for (size_t d = 0; d < head_dim; ++d) out[d] += weight * values[j * head_dim + d];
    }
    for (double& value : out) value *= v_scale / total;
    return out;
}

}  // namespace espalier::kernels
