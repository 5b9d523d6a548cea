#include "kernels/peak/peak.h"

namespace espalier::kernels {

#define ESPALIER_PEAK(tier)                                      \
    namespace tier {                                             \
    uint64_t peak_read(const void* data, size_t bytes) noexcept; \
    int64_t peak_fma_f32(int64_t iterations) noexcept;           \
    int64_t peak_dot_i8(int64_t iterations) noexcept;            \
    }
#include "kernels/peak/table.inc"
#undef ESPALIER_PEAK

namespace {

struct PeakLine {
    Isa isa;
    PeakTable table;
};

constexpr PeakLine kLines[] = {
#define ESPALIER_PEAK(tier) {Isa::tier, {tier::peak_read, tier::peak_fma_f32, tier::peak_dot_i8}},
#include "kernels/peak/table.inc"
#undef ESPALIER_PEAK
};

}  // namespace

const PeakTable& peak_table(Isa isa) {
    const PeakLine* best = &kLines[0];
    for (const PeakLine& line : kLines) {
        if (line.isa <= isa) best = &line;
    }
    return best->table;
}

}  // namespace espalier::kernels
