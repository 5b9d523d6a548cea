#include "kernels/peak/peak.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/testing.h"

namespace espalier::kernels {
namespace {

TEST(Peak, ReadsEveryByte) {
    for (const Isa isa : available_isas()) {
        std::vector<uint64_t> words(1024, 1);
        const uint64_t sum = peak_table(isa).read(words.data(), words.size() * 8);
        EXPECT_EQ(sum, 1024u) << to_string(isa);
        for (const size_t at : {size_t{0}, size_t{511}, size_t{1023}}) {
            words[at] = 8;
            EXPECT_EQ(peak_table(isa).read(words.data(), words.size() * 8), 1031u) << to_string(isa);
            words[at] = 1;
        }
    }
}

TEST(Peak, CountsItsWork) {
    for (const Isa isa : available_isas()) {
        const PeakTable& table = peak_table(isa);
        EXPECT_EQ(table.fma_f32(200), 2 * table.fma_f32(100)) << to_string(isa);
        EXPECT_EQ(table.dot_i8(200), 2 * table.dot_i8(100)) << to_string(isa);
        EXPECT_GT(table.fma_f32(1), 0);
    }
}

}  // namespace
}  // namespace espalier::kernels
