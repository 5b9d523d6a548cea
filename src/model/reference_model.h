// For tests of any folder above: a small reference checkpoint as a loaded model.
#pragma once

#include <memory>
#include <string>

#include "base/check.h"
#include "checkpoint/reference_checkpoint.h"
#include "model/model.h"

namespace espalier::model {

// `name`: "tiny_a". Aborts when it cannot be loaded. The pool is used for packing only.
inline std::unique_ptr<const Model> reference_model(const std::string& name, const LoadOptions& options, ThreadPool& pool) {
    auto checkpoint = checkpoint::Checkpoint::open(checkpoint::reference_checkpoint(name));
    CHECK(checkpoint.has_value(), checkpoint.error().message.c_str());
    auto model = Model::load(std::move(*checkpoint), options, pool);
    CHECK(model.has_value(), model.error().message.c_str());
    return std::move(*model);
}

}  // namespace espalier::model
