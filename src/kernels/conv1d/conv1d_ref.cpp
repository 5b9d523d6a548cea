#include "kernels/conv1d/conv1d_ref.h"

#include "kernels/act/act_ref.h"

namespace espalier::kernels {

std::vector<double> conv1d_ref(const Conv1dArgs& args) {
    std::vector<double> y;
    for (int64_t c = 0; c < args.n_channels; ++c) {
        double sum = 0;
        for (int tap = 0; tap < 4; ++tap) sum += static_cast<double>(args.weight[tap * args.weight_stride + c]) * args.x[tap][c];
        y.push_back(silu_ref(sum));
    }
    return y;
}

}  // namespace espalier::kernels
