// The tensors of the quantised checkpoint, each produced when its turn in the file comes: memory is a few megabytes, whatever the
// size of a weight.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_files.h"
#include "checkpoint/writer.h"
#include "quant/maxima.h"
#include "quant/recipe.h"

namespace espalier::quant {

struct OutputSource {
    checkpoint::Checkpoint& checkpoint;
    const checkpoint::TensorFiles& files;  // of the same folder
    const Plan& plan;
    const Maxima& maxima;
    ThreadPool& pool;
    // Told before a tensor is produced; an error ends the run.
    std::function<Status(const std::string& tensor)> on_tensor;
};

// Every tensor of the checkpoint, in the order of the file: scalars, then falling element size. `source` must outlive the list.
// Reads the quantised weights once for their maxima. Errors: a weight that is not finite, a tensor of a type that cannot be
// copied.
Result<std::vector<checkpoint::TensorToWrite>> output_tensors(const OutputSource& source);

}  // namespace espalier::quant
