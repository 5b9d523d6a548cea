// Tensors of random numbers for made-up checkpoints, streamed as they are written.
//
// Element i of a tensor depends only on the seed, the tensor's name and i (a counter-based generator), so pieces are made in any
// order by any number of threads with the same bytes. Normal values come from a table of 65536 quantiles: one hash gives four
// BF16 values, which keeps generation faster than a disk. NVFP4 tensors are drawn as codes and scales; nothing is quantised.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/writer.h"

namespace espalier::probe {

// 64 random bits of a stream: the splitmix64 output function over key + counter.
inline uint64_t random_bits(uint64_t key, uint64_t counter) {
    uint64_t x = key + (counter + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

class RandomWeights {
public:
    RandomWeights(uint64_t seed, int n_threads);
    RandomWeights(const RandomWeights&) = delete;
    RandomWeights& operator=(const RandomWeights&) = delete;

    // The returned tensors borrow this object until they are written.

    // BF16 values N(mean, deviation).
    checkpoint::TensorToWrite normal(std::string name, std::vector<int64_t> shape, double mean, double deviation);
    // BF16 values transform(u), u uniform in [low, high). For short vectors.
    checkpoint::TensorToWrite uniform(std::string name, int64_t n, double low, double high, double (*transform)(double));
    // Packed E2M1 codes of a weight [n, k], distributed as those of normal values whose 16-blocks were scaled to their maximum.
    checkpoint::TensorToWrite nvfp4_codes(std::string name, int64_t n, int64_t k);
    // E4M3 block scales [n, k/16].
    checkpoint::TensorToWrite nvfp4_scales(std::string name, int64_t n, int64_t k);

    // Root mean square of code x block scale: a second-level scale of deviation / nvfp4_rms() gives weights of that deviation.
    double nvfp4_rms() const { return nvfp4_rms_; }

private:
    template <class Fill>
    Status stream(int64_t n_draws, size_t draw_bytes, const Fill& fill, const checkpoint::ByteSink& sink);
    uint64_t key_of(const std::string& name) const;

    uint64_t seed_;
    ThreadPool pool_;
    std::vector<float> quantiles_;           // [65536], ascending standard normal
    std::vector<uint8_t> code_pairs_;        // [65536], one byte of two codes per 16 random bits
    std::array<uint8_t, 256> block_scales_;  // E4M3 per 8 random bits
    double nvfp4_rms_ = 1;
};

}  // namespace espalier::probe
