// One KV head of 256 over one partition of 512 keys: rows are query heads times tree nodes. Multiply-adds: 2 per key and
// dimension and row.
#include <string>

#include "kernels/benching.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kHeadDim = 256;
constexpr const char* kKvNames[] = {"f32", "bf16", "fp8"};

void run(benchmark::State& state, const KernelVariant& variant, KvType kv) {
    if (skip_unless_available(state, variant.isa)) return;
    const int64_t n_rows = state.range(0);
    const size_t element = kv == KvType::f32 ? 4 : kv == KvType::bf16 ? 2 : 1;
    // 0x3c in every byte is a small positive number in all three types.
    const std::vector<std::vector<uint8_t>> blocks(2 * kPartitionBlocks,
                                                   std::vector<uint8_t>(kHeadDim * kKeyBlock * element, 0x3c));
    std::vector<const void*> k_blocks, v_blocks;
    for (size_t b = 0; b < kPartitionBlocks; ++b) {
        k_blocks.push_back(blocks[2 * b].data());
        v_blocks.push_back(blocks[2 * b + 1].data());
    }
    const std::vector<float> q = normal_values(n_rows * kHeadDim, 1, 0.06f);
    const std::vector<int32_t> n_keys(static_cast<size_t>(n_rows), kPartitionBlocks * kKeyBlock);
    std::vector<float> m(static_cast<size_t>(n_rows)), l(m.size()), acc(m.size() * kHeadDim);
    AttentionArgs args;
    args.q = q.data();
    args.q_stride = kHeadDim;
    args.n_keys = n_keys.data();
    args.n_rows = n_rows;
    args.head_dim = kHeadDim;
    args.kv = kv;
    args.k_blocks = k_blocks.data();
    args.v_blocks = v_blocks.data();
    args.block_end = kPartitionBlocks;
    args.m = m.data();
    args.l = l.data();
    args.acc = acc.data();
    for (auto _ : state) {
        variant.table.attention(args);
        benchmark::ClobberMemory();
    }
    report(state, variant.isa, 1, Bound::fma, static_cast<double>(2 * n_rows * kHeadDim * kPartitionBlocks * kKeyBlock));
}

int register_all() {
    for (const KernelVariant& variant : variants_of("attention")) {
        for (const KvType kv : {KvType::f32, KvType::bf16, KvType::fp8}) {
            const std::string name = "attention/" + std::string(to_string(variant.isa)) + "/" + kKvNames[static_cast<int>(kv)];
            benchmark::RegisterBenchmark(name.c_str(), [variant, kv](benchmark::State& state) { run(state, variant, kv); })
                ->ArgName("rows")
                ->Arg(1)
                ->Arg(4)
                ->Arg(6)
                ->Arg(24)
                ->Unit(benchmark::kMicrosecond);
        }
    }
    return 0;
}

[[maybe_unused]] const int registered = register_all();

}  // namespace
}  // namespace espalier::kernels
