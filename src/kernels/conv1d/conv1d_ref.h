// conv1d.h in double.
#pragma once

#include <vector>

#include "kernels/conv1d/conv1d.h"

namespace espalier::kernels {

std::vector<double> conv1d_ref(const Conv1dArgs& args);

}  // namespace espalier::kernels
