#include "kernels/kv_copy/kv_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quantize/formats.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

size_t element_bytes(KvType kv) {
    return kv == KvType::f32 ? 4 : kv == KvType::bf16 ? 2 : 1;
}

// Guard bytes behind the row show writes beyond it.
constexpr uint8_t kGuard = 0xa5;

std::vector<uint8_t> run(const KernelTable& table, KvType kv, const std::vector<float>& x, float inv_scale) {
    std::vector<uint8_t> y(x.size() * element_bytes(kv) + 64, kGuard);
    table.kv_store({.kv = kv, .x = x.data(), .inv_scale = inv_scale, .y = y.data(), .n = static_cast<int64_t>(x.size())});
    return y;
}

// Nearest by exhaustive distance in double, ties to the even code, saturating.
uint8_t nearest_e4m3(float x) {
    int best = 0;
    for (int code = 1; code < 0x7f; ++code) {
        const double a = std::abs(static_cast<double>(x));
        const double distance = std::abs(a - decode_e4m3(static_cast<uint8_t>(code)));
        const double best_distance = std::abs(a - decode_e4m3(static_cast<uint8_t>(best)));
        if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
    }
    return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

class KvStoreTest : public testing::TestWithParam<KernelVariant> {};

constexpr int64_t kSizes[] = {1, 7, 8, 15, 16, 17, 31, 64, 100, 256};

TEST_P(KvStoreTest, RoundsToNearestAndKeepsWithinTheRow) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const int64_t n : kSizes) {
        const std::vector<float> x = normal_values(n, 3, 30.0f);
        const float inv_scale = 1.7f;
        const std::vector<uint8_t> fp8 = run(GetParam().table, KvType::fp8, x, inv_scale);
        const std::vector<uint8_t> bf16 = run(GetParam().table, KvType::bf16, x, inv_scale);
        const std::vector<uint8_t> f32 = run(GetParam().table, KvType::f32, x, inv_scale);
        for (size_t i = 0; i < x.size(); ++i) {
            EXPECT_EQ(fp8[i], nearest_e4m3(x[i] * inv_scale)) << x[i];
            uint16_t word;
            std::memcpy(&word, &bf16[2 * i], 2);
            EXPECT_LE(std::abs(decode_bf16(word) - x[i]), std::abs(x[i]) / 256) << x[i];
        }
        EXPECT_EQ(std::memcmp(f32.data(), x.data(), 4 * x.size()), 0);
        for (const auto& y : {fp8, bf16, f32}) EXPECT_EQ(std::count(y.end() - 64, y.end(), kGuard), 64);
    }
}

TEST_P(KvStoreTest, SameBytesAsScalar) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    ASSERT_TRUE(GetParam().flags & kSameBits);
    for (const int64_t n : kSizes) {
        std::vector<float> x = extreme_values(n, 3);
        x[0] = std::nanf("");
        x.back() = -INFINITY;
        for (const KvType kv : {KvType::f32, KvType::bf16, KvType::fp8}) {
            EXPECT_EQ(run(GetParam().table, kv, x, 0.3f), run(scalar_table(), kv, x, 0.3f)) << "n " << n;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Table, KvStoreTest, testing::ValuesIn(variants_of("kv_store")),
                         [](const auto& i) { return variant_name(i.param); });

class KPlaceTest : public testing::TestWithParam<KernelVariant> {};

TEST_P(KPlaceTest, WritesItsLaneOnly) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    for (const KvType kv : {KvType::f32, KvType::bf16, KvType::fp8}) {
        const size_t bytes = element_bytes(kv);
        for (const int64_t head_dim : {16, 64, 256}) {
            for (const int64_t lane : {0, 1, 63}) {
                std::vector<uint8_t> row(static_cast<size_t>(head_dim) * bytes);
                for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<uint8_t>(i * 7 + 1);
                std::vector<uint8_t> block(row.size() * kKeyBlock, kGuard);
                GetParam().table.k_place(
                    {.kv = kv, .row = row.data(), .block = block.data(), .lane = lane, .head_dim = head_dim});
                for (size_t d = 0; d < static_cast<size_t>(head_dim); ++d) {
                    for (size_t j = 0; j < kKeyBlock; ++j) {
                        for (size_t b = 0; b < bytes; ++b) {
                            const uint8_t expected = j == static_cast<size_t>(lane) ? row[d * bytes + b] : kGuard;
                            ASSERT_EQ(block[(d * kKeyBlock + j) * bytes + b], expected);
                        }
                    }
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Table, KPlaceTest, testing::ValuesIn(variants_of("k_place")),
                         [](const auto& i) { return variant_name(i.param); });

}  // namespace
}  // namespace espalier::kernels
