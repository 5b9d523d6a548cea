// NumPy .npy files of float32, C order (format 1.0, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace espalier::probe {

struct NpyArray {
    std::vector<int64_t> shape;
    std::vector<float> values;
};

// Errors: invalid_input (cannot write).
Status write_npy(const std::string& path, std::span<const int64_t> shape, std::span<const float> values);
// Reads little-endian float32 arrays. Errors: invalid_input, corrupt_data, unsupported (other types, Fortran order).
Result<NpyArray> read_npy(const std::string& path);

}  // namespace espalier::probe
