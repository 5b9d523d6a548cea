// What the kernel tests share: variants to drive, values to feed, bits to compare.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "kernels/variants.h"

namespace espalier::kernels {

// All variants of an op, also those this CPU cannot run; a test skips these (ESPALIER_SKIP_UNLESS_AVAILABLE), visibly.
std::vector<KernelVariant> variants_of(std::string_view op);
bool is_available(Isa isa);
// The scalar variant of any op: what kSameBits compares with.
const KernelTable& scalar_table();

std::ostream& operator<<(std::ostream& out, const KernelVariant& variant);
// "rmsnorm_avx2": a name for INSTANTIATE_TEST_SUITE_P.
std::string variant_name(const KernelVariant& variant);

// Deterministic values. `normal` has mean 0; `extreme` mixes zeros of both signs, denormals, large and tiny values.
std::vector<float> normal_values(int64_t n, uint64_t seed, float deviation = 1.0f);
std::vector<float> uniform_values(int64_t n, uint64_t seed, float low, float high);
std::vector<float> extreme_values(int64_t n, uint64_t seed);

// Index of the first element whose bits differ, or -1. NaN equals NaN whatever its payload.
int64_t first_difference(std::span<const float> a, std::span<const float> b);

// sqrt(mean((a - b)^2) / mean(b^2)), the measure of the reference data's limits.
double relative_rms(std::span<const float> a, std::span<const double> b);
double max_abs_difference(std::span<const float> a, std::span<const double> b);

// Little-endian float32 .npy in C order; shape is dropped. Aborts on anything else.
std::vector<float> read_npy_f32(const std::string& path);
Json read_json(const std::string& path);

}  // namespace espalier::kernels

#define ESPALIER_SKIP_UNLESS_AVAILABLE(isa_value)                                                \
    do {                                                                                         \
        if (!::espalier::kernels::is_available(isa_value)) {                                     \
            GTEST_SKIP() << "this CPU cannot run " << ::espalier::kernels::to_string(isa_value); \
        }                                                                                        \
    } while (false)

// A file of tests/golden/units (tests only).
#define ESPALIER_UNIT_GOLDEN(name) (std::string(ESPALIER_SOURCE_DIR) + "/tests/golden/units/" + (name))

#define EXPECT_SAME_BITS(a, b) EXPECT_EQ(::espalier::kernels::first_difference((a), (b)), -1)
