// Causal depthwise convolution of width 4 followed by SiLU, for one node of a token tree:
//   y[c] = silu( w[0][c] x0[c] + w[1][c] x1[c] + w[2][c] x2[c] + w[3][c] x3[c] )     fused left to right from 0
// x3 is the node's own input, x2..x0 those of its ancestors (or of the committed conv state); the caller walks the tree.
// Channels [0, n_channels) of the given pointers; callers split channels and nodes. No aliasing.
// Flags: row_independent, same_bits.
#pragma once

#include <cstdint>

namespace espalier::kernels {

struct Conv1dArgs {
    const float* x[4] = {};         // each [n_channels], oldest first
    const float* weight = nullptr;  // [4][weight_stride], tap-major: weight[i * weight_stride + c]
    int64_t weight_stride = 0;
    float* y = nullptr;  // [n_channels]
    int64_t n_channels = 0;
};

using Conv1dFn = void (*)(const Conv1dArgs&) noexcept;

}  // namespace espalier::kernels
