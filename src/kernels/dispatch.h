// The kernels of one tier, chosen once at start and passed down as a constant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/act/act.h"
#include "kernels/attention/attention.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/delta/delta.h"
#include "kernels/isa.h"
#include "kernels/kv_copy/kv_copy.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/sample/sample.h"

namespace espalier::kernels {

struct KernelTable {
    Isa isa = Isa::scalar;
    NormFn rmsnorm = nullptr;
    NormFn gated_rmsnorm = nullptr;
    NormFn l2norm = nullptr;
    Conv1dFn conv1d = nullptr;
    DeltaGatesFn delta_gates = nullptr;
    DeltaFn delta = nullptr;
    RopeFn rope = nullptr;
    AttentionFn attention = nullptr;
    AttentionMergeFn attention_merge = nullptr;
    SwigluFn swiglu = nullptr;
    SigmoidGateFn sigmoid_gate = nullptr;
    AddFn add = nullptr;
    ArgmaxFn argmax = nullptr;
    KvStoreFn kv_store = nullptr;
    KPlaceFn k_place = nullptr;
};

std::string_view to_string(Isa isa);
std::optional<Isa> parse_isa(std::string_view name);
// Tiers this CPU (and operating system) can run, ascending; always begins with scalar.
std::vector<Isa> available_isas();
// The tier to use: `forced` (the value of ESPALIER_ISA, empty = none) or the best available. Errors: invalid_input for an unknown
// name, unsupported when this CPU lacks it (says what it has).
Result<Isa> choose_isa(std::string_view forced);
// Per op the best variant of tier <= isa. A constant; isa must be available.
const KernelTable& kernel_table(Isa isa);

}  // namespace espalier::kernels
