#include "kernels/dispatch.h"

#include <algorithm>
#include <array>

#include "base/cpu.h"
#include "kernels/variants.h"

namespace espalier::kernels {

#define ESPALIER_KERNEL(tier, op, args, flags) \
    namespace tier {                           \
    void op(const args&) noexcept;             \
    }
#include "kernels/table.inc"
#undef ESPALIER_KERNEL

namespace {

constexpr std::array<std::string_view, 5> kIsaNames = {"scalar", "avx2", "avxvnni", "avx512", "amx"};

std::string join_names(const std::vector<Isa>& isas) {
    std::string names;
    for (const Isa isa : isas) {
        if (!names.empty()) names += ", ";
        names += to_string(isa);
    }
    return names;
}

KernelTable build_table(Isa isa) {
    KernelTable table;
    table.isa = isa;
    // Lines ascend in isa, so the last one that fits is the best.
#define ESPALIER_KERNEL(tier, op, args, flags) \
    if (Isa::tier <= isa) table.op = tier::op;
#include "kernels/table.inc"
#undef ESPALIER_KERNEL
    return table;
}

std::vector<KernelVariant> build_variants() {
    std::vector<KernelVariant> variants;
#define ESPALIER_KERNEL(tier, op_name, args, op_flags)                                                        \
    variants.push_back({.op = #op_name, .isa = Isa::tier, .flags = (op_flags), .table = {.isa = Isa::tier}}); \
    variants.back().table.op_name = tier::op_name;
#include "kernels/table.inc"
#undef ESPALIER_KERNEL
    std::stable_sort(variants.begin(), variants.end(),
                     [](const KernelVariant& a, const KernelVariant& b) { return a.op < b.op; });
    return variants;
}

}  // namespace

std::string_view to_string(Isa isa) {
    return kIsaNames[static_cast<size_t>(isa)];
}

std::optional<Isa> parse_isa(std::string_view name) {
    const auto found = std::find(kIsaNames.begin(), kIsaNames.end(), name);
    if (found == kIsaNames.end()) return std::nullopt;
    return static_cast<Isa>(found - kIsaNames.begin());
}

std::vector<Isa> available_isas() {
    const CpuFeatures cpu = cpu_features();
    std::vector<Isa> isas = {Isa::scalar};
    if (!(cpu.avx2 && cpu.fma && cpu.f16c && cpu.bmi2)) return isas;
    isas.push_back(Isa::avx2);
    if (cpu.avx_vnni) isas.push_back(Isa::avxvnni);
    if (!(cpu.avx512f && cpu.avx512bw && cpu.avx512vl && cpu.avx512dq && cpu.avx512cd && cpu.avx512_vnni)) return isas;
    isas.push_back(Isa::avx512);
    if (cpu.avx512_bf16 && cpu.amx_tile && cpu.amx_int8 && cpu.amx_bf16) isas.push_back(Isa::amx);
    return isas;
}

Result<Isa> choose_isa(std::string_view forced) {
    const std::vector<Isa> available = available_isas();
    if (forced.empty()) return available.back();
    const std::optional<Isa> isa = parse_isa(forced);
    if (!isa) {
        return invalid_input("unknown instruction set '" + std::string(forced) + "', expected one of " +
                             join_names({Isa::scalar, Isa::avx2, Isa::avxvnni, Isa::avx512, Isa::amx}) +
                             "; unset ESPALIER_ISA to choose the best");
    }
    if (std::find(available.begin(), available.end(), *isa) == available.end()) {
        return unsupported("this CPU cannot run instruction set '" + std::string(forced) + "', it has " + join_names(available) +
                           "; unset ESPALIER_ISA to choose the best");
    }
    return *isa;
}

const KernelTable& kernel_table(Isa isa) {
    static const std::array<KernelTable, kIsaNames.size()> tables = {build_table(Isa::scalar), build_table(Isa::avx2),
                                                                     build_table(Isa::avxvnni), build_table(Isa::avx512),
                                                                     build_table(Isa::amx)};
    return tables[static_cast<size_t>(isa)];
}

std::span<const KernelVariant> kernel_variants() {
    static const std::vector<KernelVariant> variants = build_variants();
    return variants;
}

}  // namespace espalier::kernels
