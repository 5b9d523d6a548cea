#include "tensor/layout.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

struct DtypeFacts {
    Dtype dtype;
    size_t bytes;
    std::string_view name;  // as safetensors spells it
};

constexpr DtypeFacts kDtypes[] = {{Dtype::f32, 4, "F32"},         {Dtype::bf16, 2, "BF16"}, {Dtype::f16, 2, "F16"},
                                  {Dtype::f8_e4m3, 1, "F8_E4M3"}, {Dtype::u8, 1, "U8"},     {Dtype::i8, 1, "I8"},
                                  {Dtype::i32, 4, "I32"},         {Dtype::i64, 8, "I64"}};

TEST(Layout, DtypesHaveSizesAndNames) {
    for (const auto& facts : kDtypes) {
        EXPECT_EQ(dtype_bytes(facts.dtype), facts.bytes) << facts.name;
        EXPECT_EQ(to_string(facts.dtype), facts.name);
    }
}

TEST(Layout, LayoutsAndSchemesHaveNames) {
    EXPECT_EQ(to_string(WeightLayout::f32), "f32");
    EXPECT_EQ(to_string(WeightLayout::bf16), "bf16");
    EXPECT_EQ(to_string(WeightLayout::f16), "f16");
    EXPECT_EQ(to_string(WeightLayout::nvfp4), "nvfp4");
    EXPECT_EQ(to_string(WeightLayout::fp8_tensor), "fp8_tensor");
    EXPECT_EQ(to_string(WeightLayout::fp8_channel), "fp8_channel");
    EXPECT_EQ(to_string(WeightLayout::fp8_block), "fp8_block");
    EXPECT_EQ(to_string(ActivationScheme::none), "none");
    EXPECT_EQ(to_string(ActivationScheme::nvfp4_static), "nvfp4_static");
    EXPECT_EQ(to_string(ActivationScheme::fp8_static), "fp8_static");
    EXPECT_EQ(to_string(ActivationScheme::fp8_dynamic_token), "fp8_dynamic_token");
    EXPECT_EQ(to_string(ActivationScheme::fp8_dynamic_block), "fp8_dynamic_block");
}

}  // namespace
}  // namespace espalier
