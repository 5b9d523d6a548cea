// The ops that stream rows through L1 and L2: bytes read and written per second, beside the read bandwidth of memory.
#include <functional>
#include <string>

#include "kernels/benching.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kN = 4096;

struct Rows {
    std::vector<float> a = normal_values(4 * kN, 1);
    std::vector<float> b = normal_values(4 * kN, 2);
    std::vector<float> y = std::vector<float>(4 * kN);
};

// One call of the variant's op, and the bytes that it moves.
struct Call {
    std::function<void()> run;
    double bytes = 0;
};

NormArgs norm_args(Rows& rows) {
    NormArgs args;
    args.x = args.z = rows.a.data();
    args.weight = rows.b.data();
    args.y = rows.y.data();
    args.n_rows = 1;
    args.n = kN;
    args.eps = 1e-6f;
    return args;
}

Call call_of(const KernelTable& table, Rows& rows) {
    if (table.rmsnorm != nullptr) return {[&, args = norm_args(rows)] { table.rmsnorm(args); }, 12.0 * kN};
    if (table.gated_rmsnorm != nullptr) return {[&, args = norm_args(rows)] { table.gated_rmsnorm(args); }, 16.0 * kN};
    if (table.l2norm != nullptr) return {[&, args = norm_args(rows)] { table.l2norm(args); }, 8.0 * kN};
    if (table.swiglu != nullptr) {
        return {[&] { table.swiglu({.gate = rows.a.data(), .up = rows.b.data(), .y = rows.y.data(), .n = kN}); }, 12.0 * kN};
    }
    if (table.sigmoid_gate != nullptr) {
        return {[&] { table.sigmoid_gate({.x = rows.y.data(), .gate = rows.a.data(), .n = kN}); }, 12.0 * kN};
    }
    if (table.add != nullptr) return {[&] { table.add({.y = rows.y.data(), .x = rows.a.data(), .n = kN}); }, 12.0 * kN};
    if (table.conv1d != nullptr) {
        Conv1dArgs args = {.weight = rows.b.data(), .weight_stride = kN, .y = rows.y.data(), .n_channels = kN};
        for (int tap = 0; tap < 4; ++tap) args.x[tap] = rows.a.data() + tap * kN;
        return {[&table, args] { table.conv1d(args); }, 36.0 * kN};
    }
    if (table.rope != nullptr) {
        return {[&] {
                    table.rope({.x = rows.y.data(),
                                .n_heads = kN / 256,
                                .head_stride = 256,
                                .cos = rows.a.data(),
                                .sin = rows.b.data(),
                                .n_pairs = 32});
                },
                2.0 * kN};
    }
    if (table.argmax != nullptr) {
        return {[&] {
                    float value;
                    int64_t index;
                    table.argmax({.x = rows.a.data(), .n = 4 * kN, .value = &value, .index = &index});
                    benchmark::DoNotOptimize(index);
                },
                16.0 * kN};
    }
    if (table.kv_store != nullptr) {
        return {[&] { table.kv_store({.kv = KvType::fp8, .x = rows.a.data(), .y = rows.y.data(), .n = kN}); }, 5.0 * kN};
    }
    if (table.delta_gates != nullptr) {
        DeltaGatesArgs args;
        args.a = rows.a.data();
        args.b = rows.a.data() + kN;
        args.neg_exp_a_log = args.dt_bias = rows.b.data();
        args.decay = rows.y.data();
        args.beta = rows.y.data() + kN;
        args.n_rows = 1;
        args.n_heads = kN;
        return {[&table, args] { table.delta_gates(args); }, 24.0 * kN};
    }
    return {};
}

void run(benchmark::State& state, const KernelVariant& variant) {
    if (skip_unless_available(state, variant.isa)) return;
    Rows rows;
    const Call call = call_of(variant.table, rows);
    for (auto _ : state) {
        call.run();
        benchmark::ClobberMemory();
    }
    report(state, variant.isa, 1, Bound::read, call.bytes);
}

int register_all() {
    for (const KernelVariant& variant : kernel_variants()) {
        Rows rows;
        if (!call_of(variant.table, rows).run) continue;  // has a benchmark of its own
        benchmark::RegisterBenchmark((std::string(variant.op) + "/" + std::string(to_string(variant.isa))).c_str(),
                                     [variant](benchmark::State& state) { run(state, variant); })
            ->Unit(benchmark::kMicrosecond);
    }
    return 0;
}

[[maybe_unused]] const int registered = register_all();

}  // namespace
}  // namespace espalier::kernels
