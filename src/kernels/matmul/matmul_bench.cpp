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

constexpr int64_t kN = 8192;
constexpr int64_t kK = 4096;

// Random bytes are valid in every layout once the exponents that mean NaN are cleared.
std::vector<std::byte> random_codes(WeightLayout layout, int64_t bytes) {
    std::mt19937_64 engine(1);
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    for (std::byte& b : data) b = static_cast<std::byte>(engine());
    const size_t step = layout == WeightLayout::f32 ? 4 : 2;
    if (layout == WeightLayout::f32 || layout == WeightLayout::bf16 || layout == WeightLayout::f16) {
        for (size_t i = step - 1; i < data.size(); i += step) data[i] &= std::byte{0xbb};
    }
    return data;
}

PackedMatrix make_packed(const MatmulKernel& kernel, ThreadPool& pool) {
    WeightView view = {.layout = kernel.layout, .n = kN, .k = kK};
    const std::vector<std::byte> data = random_codes(kernel.layout, kN * kK * (kernel.layout == WeightLayout::f32 ? 4 : 2));
    view.data = data;
    return *PackedMatrix::pack(std::span(&view, 1), kernel.acts, kernel.isa, pool);
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
        matmul(weight, x.data(), kK, m, y.data(), kN, scratch.data(), pool);
        benchmark::ClobberMemory();
    }
    if (m == 1) {
        report(state, kernel.isa, n_threads, Bound::read, static_cast<double>(weight.bytes()));
    } else {
        const Bound bound = kernel.prepare == nullptr ? Bound::fma : Bound::dot_i8;
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
