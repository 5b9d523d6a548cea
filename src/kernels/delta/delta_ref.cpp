#include "kernels/delta/delta_ref.h"

#include <cstddef>
#include <utility>

namespace espalier::kernels {

DeltaRefResult delta_ref(const DeltaArgs& args) {
    const size_t dk = static_cast<size_t>(args.dk);
    const size_t n = static_cast<size_t>(args.n_columns);
    DeltaRefResult result;
    std::vector<double> initial;
    for (size_t i = 0; i < dk; ++i) {
        for (size_t j = 0; j < n; ++j)
            initial.push_back(args.state_in[static_cast<int64_t>(i) * args.state_stride + static_cast<int64_t>(j)]);
    }
    for (int64_t node = 0; node < args.n_nodes; ++node) {
        const int64_t parent = node < args.spine ? node - 1 : args.parents[node];
        std::vector<double> state = parent < 0 ? initial : result.states[static_cast<size_t>(parent)];
        const float* k = args.k + node * args.qk_stride;
        const float* q = args.q + node * args.qk_stride;
        const float* v = args.v + node * args.v_stride;
        for (double& s : state) s *= args.decay[node * args.gate_stride];
        for (size_t j = 0; j < n; ++j) {
            double predicted = 0;
            for (size_t i = 0; i < dk; ++i) predicted += state[i * n + j] * k[i];
            const double u = args.beta[node * args.gate_stride] * (v[j] - predicted);
            double o = 0;
            for (size_t i = 0; i < dk; ++i) {
                state[i * n + j] += k[i] * u;
                o += state[i * n + j] * q[i];
            }
            result.out.push_back(o);
        }
        result.states.push_back(std::move(state));
    }
    return result;
}

}  // namespace espalier::kernels
