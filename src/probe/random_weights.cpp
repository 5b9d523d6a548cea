#include "probe/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/values.h"

namespace espalier::probe {
namespace {

using checkpoint::ByteSink;
using checkpoint::TensorToWrite;

constexpr int64_t kTaskDraws = 32768;  // a quarter MiB of BF16 values
constexpr int64_t kTasksPerPiece = 16;
constexpr size_t kQuantiles = 65536;
// The largest of 16 standard normal magnitudes is 2.15 on average; a block is scaled so that it becomes 6.
constexpr double kCodePerDeviation = 6 / 2.15;

// Standard normal quantiles at (i + 0.5) / 65536 by Newton's method, each started from its neighbour; antisymmetric by
// construction.
std::vector<float> normal_quantiles() {
    std::vector<float> table(kQuantiles);
    const double sqrt_half = std::sqrt(0.5);
    const double density_scale = 1 / std::sqrt(2 * 3.14159265358979323846);
    double z = 0;
    for (size_t i = kQuantiles / 2; i < kQuantiles; ++i) {
        const double upper_tail = (static_cast<double>(kQuantiles - i) - 0.5) / kQuantiles;
        for (int step = 0; step < 8; ++step) {
            const double error = 0.5 * std::erfc(z * sqrt_half) - upper_tail;
            z += error / (density_scale * std::exp(-0.5 * z * z));
        }
        table[i] = static_cast<float>(z);
        table[kQuantiles - 1 - i] = -table[i];
    }
    return table;
}

constexpr float kE2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

uint8_t nearest_e2m1(double value) {
    uint8_t best = 0;
    for (uint8_t code = 1; code < 8; ++code) {
        if (std::abs(std::abs(value) - kE2m1[code]) < std::abs(std::abs(value) - kE2m1[best])) best = code;
    }
    return static_cast<uint8_t>(value < 0 ? best | 8 : best);
}

}  // namespace

RandomWeights::RandomWeights(uint64_t seed, int n_threads)
    : seed_(seed), pool_(std::max(1, n_threads)), quantiles_(normal_quantiles()), code_pairs_(kQuantiles) {
    std::array<uint8_t, 256> codes;
    double code_square = 0;
    double scale_square = 0;
    for (size_t i = 0; i < 256; ++i) {
        codes[i] = nearest_e2m1(kCodePerDeviation * static_cast<double>(quantiles_[i * 256 + 128]));
        code_square += std::pow(kE2m1[codes[i] & 7], 2) / 256;
        // 88 to 288 in E4M3: real files have scales a little below the maximum of 448.
        block_scales_[i] = static_cast<uint8_t>(0x6b + i * 15 / 256);
        scale_square += std::pow(checkpoint::float_from_e4m3(block_scales_[i]), 2) / 256;
    }
    for (size_t i = 0; i < kQuantiles; ++i) code_pairs_[i] = static_cast<uint8_t>(codes[i & 255] | (codes[i >> 8] << 4));
    nvfp4_rms_ = std::sqrt(code_square * scale_square);
}

uint64_t RandomWeights::key_of(const std::string& name) const {
    uint64_t key = random_bits(seed_, 0);
    for (const char c : name) key = random_bits(key, static_cast<unsigned char>(c));
    return key;
}

// Draw d of a tensor fills bytes [d x draw_bytes, ...) of it by fill(d, destination); pieces are made by the pool and passed on
// in order.
template <class Fill>
Status RandomWeights::stream(int64_t n_draws, size_t draw_bytes, const Fill& fill, const ByteSink& sink) {
    std::vector<std::byte> piece(static_cast<size_t>(std::min(n_draws, kTaskDraws * kTasksPerPiece)) * draw_bytes);
    for (int64_t first = 0; first < n_draws; first += kTaskDraws * kTasksPerPiece) {
        const int64_t n = std::min(n_draws - first, kTaskDraws * kTasksPerPiece);
        pool_.run((n + kTaskDraws - 1) / kTaskDraws, [&](int64_t task, int) {
            const int64_t end = std::min(n, (task + 1) * kTaskDraws);
            for (int64_t d = task * kTaskDraws; d < end; ++d) fill(first + d, piece.data() + static_cast<size_t>(d) * draw_bytes);
        });
        TRY(sink(std::span(piece).first(static_cast<size_t>(n) * draw_bytes)));
    }
    return {};
}

namespace {

int64_t product(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    return n;
}

// Ends a tensor whose bytes are not a multiple of a draw: the last draw's surplus is cut off.
ByteSink cut_after(int64_t bytes, const ByteSink& sink) {
    return [left = bytes, &sink](std::span<const std::byte> piece) mutable -> Status {
        const auto n = std::min(static_cast<int64_t>(piece.size()), left);
        left -= n;
        return sink(piece.first(static_cast<size_t>(n)));
    };
}

}  // namespace

TensorToWrite RandomWeights::normal(std::string name, std::vector<int64_t> shape, double mean, double deviation) {
    const uint64_t key = key_of(name);
    const int64_t n = product(shape);
    return {std::move(name), Dtype::bf16, std::move(shape), [this, key, n, mean, deviation](const ByteSink& sink) {
                std::vector<uint16_t> table(kQuantiles);
                for (size_t i = 0; i < kQuantiles; ++i) {
                    table[i] =
                        checkpoint::bf16_from_float(static_cast<float>(mean + deviation * static_cast<double>(quantiles_[i])));
                }
                const auto fill = [key, &table](int64_t draw, std::byte* out) {
                    const uint64_t bits = random_bits(key, static_cast<uint64_t>(draw));
                    const uint16_t values[4] = {table[bits & 0xffff], table[(bits >> 16) & 0xffff], table[(bits >> 32) & 0xffff],
                                                table[bits >> 48]};
                    std::memcpy(out, values, sizeof values);
                };
                return stream((n + 3) / 4, 8, fill, cut_after(n * 2, sink));
            }};
}

TensorToWrite RandomWeights::uniform(std::string name, int64_t n, double low, double high, double (*transform)(double)) {
    const uint64_t key = key_of(name);
    std::vector<uint16_t> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) {
        const double unit = static_cast<double>(random_bits(key, i) >> 11) * 0x1p-53;
        values[i] = checkpoint::bf16_from_float(static_cast<float>(transform(low + (high - low) * unit)));
    }
    return checkpoint::tensor_from_bytes(std::move(name), Dtype::bf16, {n}, std::as_bytes(std::span(values)));
}

TensorToWrite RandomWeights::nvfp4_codes(std::string name, int64_t n, int64_t k) {
    const uint64_t key = key_of(name);
    const int64_t bytes = n * (k / 2);
    return {std::move(name), Dtype::u8, {n, k / 2}, [this, key, bytes](const ByteSink& sink) {
                const auto fill = [key, table = code_pairs_.data()](int64_t draw, std::byte* out) {
                    const uint64_t bits = random_bits(key, static_cast<uint64_t>(draw));
                    const uint8_t pairs[4] = {table[bits & 0xffff], table[(bits >> 16) & 0xffff], table[(bits >> 32) & 0xffff],
                                              table[bits >> 48]};
                    std::memcpy(out, pairs, sizeof pairs);
                };
                return stream((bytes + 3) / 4, 4, fill, cut_after(bytes, sink));
            }};
}

TensorToWrite RandomWeights::nvfp4_scales(std::string name, int64_t n, int64_t k) {
    const uint64_t key = key_of(name);
    const int64_t bytes = n * (k / 16);
    return {std::move(name), Dtype::f8_e4m3, {n, k / 16}, [this, key, bytes](const ByteSink& sink) {
                const auto fill = [key, table = block_scales_.data()](int64_t draw, std::byte* out) {
                    const uint64_t bits = random_bits(key, static_cast<uint64_t>(draw));
                    for (int i = 0; i < 8; ++i) out[i] = static_cast<std::byte>(table[(bits >> (8 * i)) & 0xff]);
                };
                return stream((bytes + 7) / 8, 8, fill, cut_after(bytes, sink));
            }};
}

}  // namespace espalier::probe
