#include "kernels/dispatch.h"

#include <gtest/gtest.h>

#include "kernels/variants.h"

namespace espalier::kernels {
namespace {

TEST(Dispatch, NamesRoundTrip) {
    for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avxvnni, Isa::avx512, Isa::amx}) {
        EXPECT_EQ(parse_isa(to_string(isa)), isa);
    }
    EXPECT_FALSE(parse_isa("sse9").has_value());
}

TEST(Dispatch, AvailableTiersBeginWithScalarAndAscend) {
    const std::vector<Isa> isas = available_isas();
    ASSERT_FALSE(isas.empty());
    EXPECT_EQ(isas.front(), Isa::scalar);
    for (size_t i = 1; i < isas.size(); ++i) EXPECT_LT(isas[i - 1], isas[i]);
}

TEST(Dispatch, ChoosesTheBestUnlessForced) {
    EXPECT_EQ(*choose_isa(""), available_isas().back());
    EXPECT_EQ(*choose_isa("scalar"), Isa::scalar);
}

TEST(Dispatch, UnknownNameIsAnErrorThatNamesTheChoices) {
    const Result<Isa> isa = choose_isa("avx3");
    ASSERT_FALSE(isa);
    EXPECT_EQ(isa.error().code, ErrorCode::invalid_input);
    EXPECT_NE(isa.error().message.find("avx3"), std::string::npos);
    EXPECT_NE(isa.error().message.find("avx512"), std::string::npos);
}

TEST(Dispatch, EveryTableIsCompleteAndOnlyUsesItsTier) {
    for (const Isa isa : available_isas()) {
        const KernelTable& table = kernel_table(isa);
        EXPECT_EQ(table.isa, isa);
        EXPECT_NE(table.rmsnorm, nullptr);
        EXPECT_NE(table.gated_rmsnorm, nullptr);
        EXPECT_NE(table.l2norm, nullptr);
        EXPECT_NE(table.conv1d, nullptr);
        EXPECT_NE(table.delta_gates, nullptr);
        EXPECT_NE(table.delta, nullptr);
        EXPECT_NE(table.rope, nullptr);
        EXPECT_NE(table.attention, nullptr);
        EXPECT_NE(table.attention_merge, nullptr);
        EXPECT_NE(table.swiglu, nullptr);
        EXPECT_NE(table.sigmoid_gate, nullptr);
        EXPECT_NE(table.add, nullptr);
        EXPECT_NE(table.argmax, nullptr);
        EXPECT_NE(table.kv_store, nullptr);
        EXPECT_NE(table.k_place, nullptr);
    }
}

TEST(Dispatch, VariantsAscendWithinAnOp) {
    const std::span<const KernelVariant> variants = kernel_variants();
    ASSERT_FALSE(variants.empty());
    for (size_t i = 1; i < variants.size(); ++i) {
        if (variants[i].op == variants[i - 1].op) {
            EXPECT_LT(variants[i - 1].isa, variants[i].isa) << variants[i].op;
        } else {
            EXPECT_EQ(variants[i].isa, Isa::scalar) << variants[i].op << " has no scalar variant";
        }
    }
}

}  // namespace
}  // namespace espalier::kernels
