// What must be equal for a stored conversation to mean the same here: weights, template, numerics, kernels.
#pragma once

#include <string>

#include "base/result.h"
#include "cache/disk_format.h"
#include "model/model.h"

namespace espalier::engine {

// path: the model's folder or file. The weights are known by the files' names, sizes, times of change and samples all over them,
// not by every byte: a model whose training went on differs nearly everywhere. Kernels are known by this program file and the C
// library, since a build may change the bits of floating-point sums. Errors: invalid_input when a file cannot be read.
Result<cache::DiskIdentity> disk_identity(const std::string& path, const model::Model& model, const std::string& template_hash);

}  // namespace espalier::engine
