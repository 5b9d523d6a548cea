// Runs many texts through a model one layer at a time: a layer's weights are loaded, all rows go through it, the weights are
// dropped. Memory is one layer plus the state of one sequence, whatever the size of the model; hidden rows are on disk.
//
// The arithmetic is the engine's own forward pass, so rows are the same bits as those of a whole model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "model/forward.h"
#include "model/model.h"
#include "quant/maxima.h"
#include "quant/row_file.h"
#include "quant/token_sets.h"

namespace espalier::quant {

class LayerStream {
public:
    struct Options {
        std::string folder;
        kernels::Acts acts = kernels::Acts::a32;
        kernels::Isa isa = kernels::Isa::scalar;
    };
    // `pool` and `tokens` must outlive it.
    LayerStream(Options options, const TokenSet& tokens, ThreadPool& pool)
        : options_(std::move(options)), tokens_(tokens), pool_(pool) {}

    // The embedding rows of all tokens.
    Status embed(RowFile& out);
    // All rows through one layer. The calibration sequences are shown to `maxima` unless it is null.
    Status run_layer(int32_t layer, const RowFile& in, RowFile& out, Maxima* maxima);
    // All rows through the final norm; what enters the head is added to `maxima` under kHeadKey.
    Status run_final_norm(const RowFile& in, RowFile& out, Maxima* maxima);
    // The calibration sequences through the MTP head, with the rows after the final norm.
    Status run_mtp(const RowFile& final_rows, Maxima& maxima);
    // The part of the model that makes logits of final rows.
    Result<std::unique_ptr<const model::Model>> load_head() const;

private:
    class Runner;
    Result<std::unique_ptr<const model::Model>> load(const model::ModelPart& part) const;

    Options options_;
    const TokenSet& tokens_;
    ThreadPool& pool_;
};

}  // namespace espalier::quant
