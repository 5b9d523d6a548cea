// delta.h in double. The state of every node is kept, so a tree needs no care.
#pragma once

#include <vector>

#include "kernels/delta/delta.h"

namespace espalier::kernels {

struct DeltaRefResult {
    std::vector<double> out;                  // [n_nodes, n_columns]
    std::vector<std::vector<double>> states;  // after each node: [dk, n_columns]
};

DeltaRefResult delta_ref(const DeltaArgs& args);

}  // namespace espalier::kernels
