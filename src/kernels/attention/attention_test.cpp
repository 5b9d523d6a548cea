#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention/attention_ref.h"
#include "kernels/quantize/formats.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

size_t element_bytes(KvType kv) {
    return kv == KvType::f32 ? 4 : kv == KvType::bf16 ? 2 : 1;
}

// Keys and values of one KV head, stored in blocks of one type; hidden lanes of the last block are filled with `filler`.
struct KvCase {
    KvType kv = KvType::f32;
    int64_t head_dim = 0;
    int64_t n_keys = 0;
    std::vector<float> keys, values;  // [n_keys, head_dim], as the stored type rounds them
    std::vector<std::vector<uint8_t>> k_blocks, v_blocks;
};

// Stores x in the block and returns what the type made of it.
float put(KvType kv, float x, std::vector<uint8_t>& block, size_t at) {
    switch (kv) {
        case KvType::f32: std::memcpy(&block[4 * at], &x, 4); return x;
        case KvType::bf16: {
            uint32_t bits;
            std::memcpy(&bits, &x, 4);
            const uint16_t word = static_cast<uint16_t>(bits >> 16);
            std::memcpy(&block[2 * at], &word, 2);
            return decode_bf16(word);
        }
        case KvType::fp8: block[at] = encode_e4m3(x); return decode_e4m3(block[at]);
    }
    return 0;
}

KvCase make_kv(KvType kv, int64_t head_dim, int64_t n_keys, float filler = 3.5f) {
    KvCase c = {kv, head_dim, n_keys, normal_values(n_keys * head_dim, 1), normal_values(n_keys * head_dim, 2), {}, {}};
    const size_t width = static_cast<size_t>(head_dim);
    const size_t n_blocks = static_cast<size_t>((n_keys + kKeyBlock - 1) / kKeyBlock);
    for (size_t b = 0; b < n_blocks; ++b) {
        std::vector<uint8_t> k_block(width * kKeyBlock * element_bytes(kv));
        std::vector<uint8_t> v_block(k_block.size());
        for (size_t j = 0; j < kKeyBlock; ++j) {
            const size_t key = b * kKeyBlock + j;
            for (size_t d = 0; d < width; ++d) {
                const bool visible = key < static_cast<size_t>(n_keys);
                const float k = put(kv, visible ? c.keys[key * width + d] : filler, k_block, d * kKeyBlock + j);
                const float v = put(kv, visible ? c.values[key * width + d] : -filler, v_block, j * width + d);
                if (visible) {
                    c.keys[key * width + d] = k;
                    c.values[key * width + d] = v;
                }
            }
        }
        c.k_blocks.push_back(std::move(k_block));
        c.v_blocks.push_back(std::move(v_block));
    }
    return c;
}

// All partitions of every row, merged: [n_rows, head_dim].
std::vector<float> run(const KernelTable& table, const KvCase& c, const std::vector<float>& q, const std::vector<int32_t>& n_keys,
                       float v_scale = 1.0f) {
    const int64_t n_rows = static_cast<int64_t>(n_keys.size());
    const int64_t n_blocks = static_cast<int64_t>(c.k_blocks.size());
    const int64_t n_partitions = (n_blocks + kPartitionBlocks - 1) / kPartitionBlocks;
    std::vector<const void*> k_blocks, v_blocks;
    for (const auto& block : c.k_blocks) k_blocks.push_back(block.data());
    for (const auto& block : c.v_blocks) v_blocks.push_back(block.data());
    std::vector<float> m(static_cast<size_t>(n_partitions * n_rows)), l(m.size());
    std::vector<float> acc(m.size() * static_cast<size_t>(c.head_dim));
    for (int64_t p = 0; p < n_partitions; ++p) {
        AttentionArgs args;
        args.q = q.data();
        args.q_stride = c.head_dim;
        args.n_keys = n_keys.data();
        args.n_rows = n_rows;
        args.head_dim = c.head_dim;
        args.kv = c.kv;
        args.block_begin = p * kPartitionBlocks;
        args.block_end = std::min(n_blocks, (p + 1) * kPartitionBlocks);
        args.k_blocks = k_blocks.data() + args.block_begin;
        args.v_blocks = v_blocks.data() + args.block_begin;
        args.m = m.data() + p * n_rows;
        args.l = l.data() + p * n_rows;
        args.acc = acc.data() + p * n_rows * c.head_dim;
        table.attention(args);
    }
    std::vector<float> out(static_cast<size_t>(n_rows * c.head_dim));
    for (int64_t row = 0; row < n_rows; ++row) {
        AttentionMergeArgs args;
        args.m = m.data() + row;
        args.l = l.data() + row;
        args.m_stride = n_rows;
        args.acc = acc.data() + row * c.head_dim;
        args.acc_stride = n_rows * c.head_dim;
        const int64_t keys_per_partition = kPartitionBlocks * kKeyBlock;
        args.n_partitions = (n_keys[static_cast<size_t>(row)] + keys_per_partition - 1) / keys_per_partition;
        args.head_dim = c.head_dim;
        args.v_scale = v_scale;
        args.out = out.data() + row * c.head_dim;
        table.attention_merge(args);
    }
    return out;
}

std::vector<float> queries(int64_t n_rows, int64_t head_dim, float deviation = 1.0f) {
    return normal_values(n_rows * head_dim, 3, deviation / std::sqrt(static_cast<float>(head_dim)));
}

// Row counts around the row groups of the variants, keys around the blocks and partitions.
struct Shape {
    int64_t head_dim;
    std::vector<int32_t> n_keys;
};

std::vector<Shape> shapes() {
    return {{16, {1}},
            {64, {63, 64, 65}},
            {32, {1, 2, 3, 4, 5, 6, 7}},
            {256, {128, 129, 130, 131, 132, 133}},
            {48, {513, 2, 1100, 512, 64, 600, 1025, 1, 1100}},
            {80, {70, 70, 70, 70, 70}}};
}

class AttentionTest : public testing::TestWithParam<std::tuple<KernelVariant, KvType>> {
protected:
    void SetUp() override {
        variant = std::get<0>(GetParam());
        kv = std::get<1>(GetParam());
        ESPALIER_SKIP_UNLESS_AVAILABLE(variant.isa);
        table = kernel_table(variant.isa);
    }
    KernelVariant variant;
    KernelTable table;
    KvType kv = KvType::f32;
};

TEST_P(AttentionTest, MatchesTheOracle) {
    for (const Shape& shape : shapes()) {
        const int64_t n_rows = static_cast<int64_t>(shape.n_keys.size());
        const KvCase c = make_kv(kv, shape.head_dim, *std::max_element(shape.n_keys.begin(), shape.n_keys.end()));
        const std::vector<float> q = queries(n_rows, shape.head_dim, 3.0f);
        const std::vector<float> out = run(table, c, q, shape.n_keys, 0.7f);
        const size_t width = static_cast<size_t>(shape.head_dim);
        for (size_t row = 0; row < shape.n_keys.size(); ++row) {
            const size_t n = static_cast<size_t>(shape.n_keys[row]) * width;
            const std::vector<double> expected = attention_ref(std::span(q).subspan(row * width, width),
                                                               std::span(c.keys).first(n), std::span(c.values).first(n), 0.7f);
            EXPECT_LT(max_abs_difference(std::span(out).subspan(row * width, width), expected), 1e-5) << "row " << row;
        }
    }
}

TEST_P(AttentionTest, SameBitsAsScalar) {
    ASSERT_TRUE(variant.flags & kSameBits);
    for (const Shape& shape : shapes()) {
        const int64_t n_rows = static_cast<int64_t>(shape.n_keys.size());
        const KvCase c = make_kv(kv, shape.head_dim, *std::max_element(shape.n_keys.begin(), shape.n_keys.end()));
        for (const float deviation : {1.0f, 100.0f}) {  // 100: weights that underflow to zero
            const std::vector<float> q = queries(n_rows, shape.head_dim, deviation);
            EXPECT_SAME_BITS(run(table, c, q, shape.n_keys), run(scalar_table(), c, q, shape.n_keys));
        }
    }
}

TEST_P(AttentionTest, ARowDoesNotDependOnItsNeighbours) {
    ASSERT_TRUE(variant.flags & kRowIndependent);
    for (const Shape& shape : shapes()) {
        const int64_t n_rows = static_cast<int64_t>(shape.n_keys.size());
        const KvCase c = make_kv(kv, shape.head_dim, *std::max_element(shape.n_keys.begin(), shape.n_keys.end()));
        const std::vector<float> q = queries(n_rows, shape.head_dim);
        const std::vector<float> together = run(table, c, q, shape.n_keys);
        const size_t width = static_cast<size_t>(shape.head_dim);
        for (size_t row = 0; row < shape.n_keys.size(); ++row) {
            const std::vector<float> own(q.begin() + static_cast<int64_t>(row * width),
                                         q.begin() + static_cast<int64_t>((row + 1) * width));
            EXPECT_SAME_BITS(run(table, c, own, {shape.n_keys[row]}), std::span(together).subspan(row * width, width)) << row;
        }
    }
}

TEST_P(AttentionTest, HiddenLanesAndLaterBlocksDoNotMatter) {
    const KvCase small = make_kv(kv, 64, 100, 0.0f);
    const KvCase other = make_kv(kv, 64, 100, 400.0f);
    const KvCase longer = make_kv(kv, 64, 100 + 700);
    const std::vector<float> q = queries(3, 64);
    const std::vector<int32_t> n_keys = {100, 65, 90};
    const std::vector<float> out = run(table, small, q, n_keys);
    EXPECT_SAME_BITS(run(table, other, q, n_keys), out);
    // Lanes hidden from a row may hold real keys, and blocks behind its last key may or may not be there.
    KvCase prefix = longer;
    prefix.k_blocks.resize(2);
    prefix.v_blocks.resize(2);
    EXPECT_SAME_BITS(run(table, prefix, q, n_keys), run(table, longer, q, n_keys));
}

std::string attention_name(const testing::TestParamInfo<std::tuple<KernelVariant, KvType>>& info) {
    constexpr const char* kNames[] = {"f32", "bf16", "fp8"};
    return variant_name(std::get<0>(info.param)) + "_" + kNames[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionTest,
                         testing::Combine(testing::ValuesIn(variants_of("attention")),
                                          testing::Values(KvType::f32, KvType::bf16, KvType::fp8)),
                         attention_name);

class AttentionMergeTest : public testing::TestWithParam<KernelVariant> {};

TEST_P(AttentionMergeTest, WeighsPartitionsByTheirMaxima) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    const std::vector<float> m = {0.5f, 2.0f, -100.0f};
    const std::vector<float> l = {3.0f, 1.5f, 20.0f};
    const std::vector<float> acc = normal_values(3 * 48, 1);
    std::vector<float> out(48), scalar(48);
    AttentionMergeArgs args;
    args.m = m.data();
    args.l = l.data();
    args.m_stride = 1;
    args.acc = acc.data();
    args.acc_stride = 48;
    args.n_partitions = 3;
    args.head_dim = 48;
    args.v_scale = 2.5f;
    args.out = out.data();
    GetParam().table.attention_merge(args);
    args.out = scalar.data();
    scalar_table().attention_merge(args);
    EXPECT_SAME_BITS(out, scalar);
    for (size_t d = 0; d < 48; ++d) {
        double sum = 0;
        double total = 0;
        for (size_t p = 0; p < 3; ++p) {
            sum += acc[p * 48 + d] * std::exp(static_cast<double>(m[p]) - 2.0);
            total += l[p] * std::exp(static_cast<double>(m[p]) - 2.0);
        }
        EXPECT_NEAR(out[d], 2.5 * sum / total, 1e-6);
    }
}

TEST_P(AttentionMergeTest, OnePartitionIsOnlyNormalised) {
    ESPALIER_SKIP_UNLESS_AVAILABLE(GetParam().isa);
    const std::vector<float> acc = normal_values(16, 1);
    const float m = 7.0f;
    const float l = 3.0f;
    std::vector<float> out(16);
    GetParam().table.attention_merge({.m = &m,
                                      .l = &l,
                                      .m_stride = 1,
                                      .acc = acc.data(),
                                      .acc_stride = 16,
                                      .n_partitions = 1,
                                      .head_dim = 16,
                                      .out = out.data()});
    for (size_t d = 0; d < 16; ++d) EXPECT_EQ(out[d], acc[d] / l);
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionMergeTest, testing::ValuesIn(variants_of("attention_merge")),
                         [](const auto& i) { return variant_name(i.param); });

}  // namespace
}  // namespace espalier::kernels
