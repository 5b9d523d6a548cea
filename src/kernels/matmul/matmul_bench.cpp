// Every line of matmul/table.inc: one row against a weight larger than the cache (GB/s of packed bytes), then a few rows and
// 512 rows (GMAC/s). Names: matmul/<isa>/<layout>/<acts>/m:<rows>/threads:<n>.
#include <algorithm>
#include <memory>
#include <random>
#include <string>

#include "kernels/benching.h"
#include "kernels/matmul/matmul_table.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kN = 16384;
constexpr int64_t kK = 4096;

// A weight of random bytes without those that mean NaN or infinity.
struct BenchWeight {
    WeightView view;
    std::vector<std::byte> data;
    std::vector<uint8_t> block_scales;
};

int64_t data_bytes(WeightLayout layout) {
    switch (layout) {
        case WeightLayout::f32: return 4 * kN * kK;
        case WeightLayout::bf16:
        case WeightLayout::f16: return 2 * kN * kK;
        case WeightLayout::nvfp4: return kN * kK / 2;
        default: return kN * kK;
    }
}

BenchWeight make_weight(WeightLayout layout) {
    BenchWeight weight;
    std::mt19937_64 engine(1);
    weight.data.resize(static_cast<size_t>(data_bytes(layout)));
    for (std::byte& b : weight.data) b = static_cast<std::byte>(engine()) & std::byte{0xbb};
    weight.block_scales.assign(static_cast<size_t>(kN * kK / 16), 0x38);
    WeightView& view = weight.view;
    view = {.layout = layout, .n = kN, .k = kK, .data = weight.data, .block_scales_e4m3 = weight.block_scales};
    view.row_scales = {{0, kN, 0.01f, 0.01f}};
    view.scales.assign(kN, 0.01f);
    if (layout == WeightLayout::nvfp4) view.activations = ActivationScheme::nvfp4_static;
    if (layout == WeightLayout::fp8_tensor) view.activations = ActivationScheme::fp8_static;
    if (layout == WeightLayout::fp8_channel) view.activations = ActivationScheme::fp8_dynamic_token;
    if (layout == WeightLayout::fp8_block) view.activations = ActivationScheme::fp8_dynamic_block;
    return weight;
}

PackedMatrix make_packed(const MatmulKernel& kernel, ThreadPool& pool) {
    const BenchWeight weight = make_weight(kernel.layout);
    return *PackedMatrix::pack(std::span(&weight.view, 1), kernel.acts, kernel.isa, pool);
}

void run(benchmark::State& state, const MatmulKernel& kernel) {
    if (skip_unless_available(state, kernel.isa)) return;
    const int64_t m = state.range(0);
    const int n_threads = static_cast<int>(state.range(1));
    ThreadPool pool(n_threads);
    const PackedMatrix weight = make_packed(kernel, pool);
    const std::vector<float> x = normal_values(m * kK, 2);
    std::vector<float> y(static_cast<size_t>(m * kN));
    Buffer scratch = *Buffer::allocate(matmul_scratch_bytes(weight, m));
    for (auto _ : state) {
        matmul(weight, {x.data(), kK, m, y.data(), kN, scratch.data()}, pool);
        benchmark::ClobberMemory();
    }
    if (m == 1) {
        report(state, kernel.isa, n_threads, Bound::read, static_cast<double>(weight.bytes()));
    } else {
        const bool is_int8 = kernel.layout == WeightLayout::nvfp4 && (kernel.acts == Acts::a8 || kernel.acts == Acts::ckpt);
        const Bound bound = is_int8 ? Bound::dot_i8 : Bound::fma;
        report(state, kernel.isa, n_threads, bound, static_cast<double>(m * kN * kK));
    }
}

int register_all() {
    for (const MatmulVariant& variant : matmul_variants()) {
        const MatmulKernel* kernel = &variant.kernel;
        const std::string name = "matmul/" + std::string(kernel->name);
        for (const int64_t n_threads : {1, 2}) {
            auto* bench = benchmark::RegisterBenchmark(name.c_str(), [kernel](benchmark::State& state) { run(state, *kernel); });
            bench->ArgNames({"m", "threads"})->Unit(benchmark::kMillisecond);
            if (n_threads > 1) bench->UseRealTime();  // one thread: processor time
            for (const int64_t m : {1, 2, 4, 8, 16, 512}) {
                if (kernel->isa == Isa::scalar && m > 2) continue;
                bench->Args({m, n_threads});
            }
        }
    }
    return 0;
}

[[maybe_unused]] const int registered = register_all();

}  // namespace
}  // namespace espalier::kernels
