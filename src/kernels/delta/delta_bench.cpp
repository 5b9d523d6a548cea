// One value head's column block (32 of 128 columns), a chain of tokens: bytes are the state, read and written once per token,
// multiply-adds are the 4 per state element (decay, prediction, update, output).
#include <string>

#include "kernels/benching.h"
#include "kernels/testing.h"
#include "tensor/buffer.h"

namespace espalier::kernels {
namespace {

void run(benchmark::State& state, const KernelVariant& variant) {
    if (skip_unless_available(state, variant.isa)) return;
    constexpr int64_t kDk = 128;
    const int64_t n = state.range(0);
    const std::vector<float> qk = normal_values(2 * n * kDk, 1, 0.09f);
    const std::vector<float> v = normal_values(n * kDeltaColumns, 2);
    const std::vector<float> gates = uniform_values(2 * n, 3, 0.5f, 0.9f);
    std::vector<float> s(kDk * kDeltaColumns);
    std::vector<float> out(static_cast<size_t>(n * kDeltaColumns));
    Buffer scratch = *Buffer::allocate(kDk * kDeltaColumns * sizeof(float));
    DeltaArgs args;
    args.q = qk.data();
    args.k = qk.data() + n * kDk;
    args.qk_stride = kDk;
    args.v = v.data();
    args.v_stride = kDeltaColumns;
    args.decay = gates.data();
    args.beta = gates.data() + n;
    args.gate_stride = 1;
    args.n_nodes = args.spine = n;
    args.dk = kDk;
    args.n_columns = kDeltaColumns;
    args.state_in = args.state_out = s.data();
    args.state_stride = kDeltaColumns;
    args.out = out.data();
    args.out_stride = kDeltaColumns;
    args.scratch = scratch.as<float>();
    for (auto _ : state) {
        variant.table.delta(args);
        benchmark::ClobberMemory();
    }
    report(state, variant.isa, 1, Bound::fma, static_cast<double>(4 * n * kDk * kDeltaColumns));
}

int register_all() {
    for (const KernelVariant& variant : variants_of("delta")) {
        benchmark::RegisterBenchmark(("delta/" + std::string(to_string(variant.isa))).c_str(),
                                     [variant](benchmark::State& state) { run(state, variant); })
            ->ArgName("tokens")
            ->Arg(1)
            ->Arg(64)
            ->Unit(benchmark::kMicrosecond);
    }
    return 0;
}

[[maybe_unused]] const int registered = register_all();

}  // namespace
}  // namespace espalier::kernels
