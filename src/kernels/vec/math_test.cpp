// The shared functions of one vector (math_body.inc), through the scalar vocabulary, against double precision. That the
// other tiers give the same bits is seen by the tests of the ops.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/act/act_ref.h"
#include "kernels/quantize/formats.h"
#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

// Each file builds on those before it.
// clang-format off
#include "kernels/vec/vec_scalar.inc"
#include "kernels/vec/math_body.inc"
// clang-format on

float first(Vec v) {
    return v.v[0];
}

// Every 1 / kSteps of the exponent range of normal floats below `limit`, of both signs.
template <class Body>
void sweep(float limit, const Body& body) {
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 4099u) {
        const float x = std::bit_cast<float>(bits);
        if (x >= limit) return;
        body(x);
        body(-x);
    }
}

TEST(Math, ExpIsWithinItsBound) {
    double worst = 0;
    sweep(87.3f, [&](float x) {
        const double exact = std::exp(static_cast<double>(x));
        worst = std::max(worst, std::abs(first(exp_poly(set1(x))) - exact) / exact);
    });
    EXPECT_LT(worst, 2e-7);
    RecordProperty("worst_relative_error", std::to_string(worst));
}

TEST(Math, ExpAtTheEdges) {
    EXPECT_EQ(first(exp_poly(set1(0.0f))), 1.0f);
    EXPECT_EQ(first(exp_poly(set1(-0.0f))), 1.0f);
    EXPECT_EQ(first(exp_poly(set1(-87.4f))), 0.0f);
    EXPECT_GT(first(exp_poly(set1(-87.3f))), 0.0f);
    EXPECT_EQ(first(exp_poly(set1(-INFINITY))), 0.0f);
    EXPECT_EQ(first(exp_poly(set1(88.4f))), INFINITY);
    EXPECT_LT(first(exp_poly(set1(88.3f))), INFINITY);
    EXPECT_EQ(first(exp_poly(set1(INFINITY))), INFINITY);
    EXPECT_TRUE(std::isnan(first(exp_poly(set1(std::nanf(""))))));
}

TEST(Math, SoftplusIsAccurateRelativeToItsValue) {
    double worst = 0;
    sweep(87.0f, [&](float x) {
        const double exact = softplus_ref(x);
        worst = std::max(worst, std::abs(first(softplus(set1(x))) - exact) / exact);
    });
    EXPECT_LT(worst, 4e-7);
    EXPECT_EQ(first(softplus(set1(1000.0f))), 1000.0f);
    EXPECT_EQ(first(softplus(set1(-1000.0f))), 0.0f);
    EXPECT_TRUE(std::isnan(first(softplus(set1(std::nanf(""))))));
}

TEST(Math, EveryHalfIsExact) {
    for (uint32_t h = 0; h < 0x10000u; ++h) {
        const float expected = decode_f16(static_cast<uint16_t>(h));
        const float found = first(half_to_float(set1_int(static_cast<int32_t>(h))));
        if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(found)) << h;
        } else {
            EXPECT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(expected)) << h;
        }
    }
}

TEST(Math, E4m3RoundTripsEveryFiniteCode) {
    for (int code = 0; code < 256; ++code) {
        if ((code & 0x7f) == 0x7f) continue;
        const std::vector<uint8_t> codes(kLanes, static_cast<uint8_t>(code));
        const float value = first(load_e4m3(codes.data()));
        EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(decode_e4m3(static_cast<uint8_t>(code)))) << code;
        EXPECT_EQ(float_to_e4m3(set1(value)).v[0], code);
    }
}

TEST(Math, E4m3EncodesLikeTheOneValueForm) {
    sweep(INFINITY, [](float x) { ASSERT_EQ(float_to_e4m3(set1(x)).v[0], encode_e4m3(x)) << x; });
    EXPECT_EQ(float_to_e4m3(set1(INFINITY)).v[0], 0x7e);
    EXPECT_EQ(float_to_e4m3(set1(-0.0f)).v[0], 0x80);
    EXPECT_EQ(float_to_e4m3(set1(std::nanf(""))).v[0] & 0x7f, 0x7f);
}

TEST(Math, RoundingToE4m3IsEncodingAndDecoding) {
    sweep(INFINITY, [](float x) { ASSERT_EQ(first(round_to_e4m3(set1(x))), decode_e4m3(encode_e4m3(x))) << x; });
    EXPECT_EQ(first(round_to_e4m3(set1(-INFINITY))), -448.0f);
    EXPECT_EQ(std::bit_cast<uint32_t>(first(round_to_e4m3(set1(-1e-9f)))), 0x80000000u);
}

TEST(Math, E2m1Lookup) {
    for (int code = 0; code < 16; ++code) {
        EXPECT_EQ(first(lookup_e2m1(set1_int(code | 0x50))), decode_e2m1(static_cast<uint8_t>(code))) << code;
    }
}

TEST(Math, Bf16RoundsToNearestEven) {
    const auto round = [](uint32_t bits) { return static_cast<uint32_t>(float_to_bf16(set1(std::bit_cast<float>(bits))).v[0]); };
    EXPECT_EQ(round(0x3f808000u), 0x3f80u);  // tie to even, down
    EXPECT_EQ(round(0x3f818000u), 0x3f82u);  // tie to even, up
    EXPECT_EQ(round(0x3f808001u), 0x3f81u);
    EXPECT_EQ(round(0x7f7fffffu), 0x7f80u);  // rounds up to infinity
    EXPECT_EQ(round(0x80000001u), 0x8000u);
    EXPECT_EQ(round(0x7f800001u) & 0x7fc0u, 0x7fc0u);  // NaN stays NaN
}

}  // namespace
}  // namespace espalier::kernels
