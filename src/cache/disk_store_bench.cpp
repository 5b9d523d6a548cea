// Restoring a conversation of 16,384 tokens in the shape of the 0.8B model: pages in the system's page cache, pools touched
// before.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/check.h"
#include "cache/disk_store.h"

namespace espalier::cache {
namespace {

constexpr int32_t kTokens = 16384;

StateShape shape_of_0_8b() {
    StateShape shape;
    shape.n_kv_layers = 7;
    shape.n_kv_heads = 2;
    shape.head_dim = 256;
    shape.kv = kernels::KvType::bf16;
    shape.n_recurrent_layers = 18;
    shape.n_value_heads = 16;
    shape.key_dim = 128;
    shape.value_dim = 128;
    shape.conv_channels = 6144;
    shape.hidden = 1024;
    return shape;
}

// One conversation on disk and an empty pool.
class Stored {
public:
    Stored() {
        directory_ = (std::filesystem::temp_directory_path() / fmt::format("espalier_disk_bench_{}", ::getpid())).string();
        restart();
        prompt_.resize(kTokens + 1);
        for (int32_t i = 0; i <= kTokens; ++i) prompt_[static_cast<size_t>(i)] = i * 7 % 1000;
        Sequence sequence = *Sequence::create(*memory_, kTokens);
        CHECK(sequence.make_writable(0, kTokens).has_value(), "enough pages");
        for (int32_t page = 0; page < sequence.n_pages(); ++page)
            std::memset(memory_->pages().data(sequence.page(page)), page, memory_->shape().page_bytes());
        const int32_t state = memory_->states().acquire();
        std::memset(memory_->states().data(state), 1, memory_->shape().state_bytes());
        sequence.append(std::span(prompt_).first(kTokens), state);
        CHECK(store_->keep(std::move(sequence), {}) == DiskStore::Kept::queued, "room on disk");
        store_->flush();
        bytes_ = store_->gauges().page_bytes_written + store_->gauges().state_bytes_written;
    }
    ~Stored() {
        store_.reset();
        std::filesystem::remove_all(directory_);
    }

    // Untouched pools, and a store that has read its directory.
    void restart() {
        store_.reset();
        auto memory = Memory::create(shape_of_0_8b(), {kTokens / kPageTokens + 1, 3});
        CHECK(memory.has_value(), "memory for the benchmark");
        memory_.emplace(std::move(*memory));
        DiskStore::Options options;
        options.directory = directory_;
        options.bytes_max = int64_t{4} << 30;
        auto store = DiskStore::open(options, *memory_);
        CHECK(store.has_value(), "a directory for the benchmark");
        store_ = std::move(*store);
    }
    void restore() {
        auto restored = store_->restore_longest(prompt_, {}, kTokens);
        CHECK(restored && *restored && (*restored)->sequence.length() == kTokens && !(*restored)->is_from_memory, "it is stored");
    }
    int32_t find() { return store_->find_longest(prompt_, {}); }
    int64_t bytes() const { return bytes_; }

private:
    std::string directory_;
    std::optional<Memory> memory_;
    std::vector<TokenId> prompt_;
    std::unique_ptr<DiskStore> store_;
    int64_t bytes_ = 0;
};

void disk_restore_16k(benchmark::State& state) {
    Stored stored;
    stored.restore();
    for (auto _ : state) stored.restore();
    state.SetBytesProcessed(state.iterations() * stored.bytes());
    state.counters["MiB"] = static_cast<double>(stored.bytes()) / (1 << 20);
}
BENCHMARK(disk_restore_16k)->Unit(benchmark::kMillisecond)->UseRealTime();

// Right after a restart: the pools' memory is touched for the first time.
void disk_restore_16k_first(benchmark::State& state) {
    Stored stored;
    for (auto _ : state) {
        state.PauseTiming();
        stored.restart();
        state.ResumeTiming();
        stored.restore();
    }
    state.SetBytesProcessed(state.iterations() * stored.bytes());
}
BENCHMARK(disk_restore_16k_first)->Unit(benchmark::kMillisecond)->UseRealTime();

void disk_find_16k(benchmark::State& state) {
    Stored stored;
    for (auto _ : state) benchmark::DoNotOptimize(stored.find());
}
BENCHMARK(disk_find_16k)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace espalier::cache
