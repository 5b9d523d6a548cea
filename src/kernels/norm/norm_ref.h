// The norms of norm.h in double, one row at a time.
#pragma once

#include <vector>

#include "kernels/norm/norm.h"

namespace espalier::kernels {

std::vector<double> rmsnorm_ref(const NormArgs& args);
std::vector<double> gated_rmsnorm_ref(const NormArgs& args);
std::vector<double> l2norm_ref(const NormArgs& args);

}  // namespace espalier::kernels
