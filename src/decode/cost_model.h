// What a verify pass costs, by its rows and the context it stands at: measured once at start, then refreshed by every step. The
// pass is memory-bound for few rows and compute-bound for many; where it bends, and that kernels work in blocks of rows, differs
// from machine to machine, so nothing is assumed but that more rows do not cost less.
//
// Also keeps what a token costs at present: the price at which a draft node pays.
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"
#include "model/forward.h"

namespace espalier::decode {

class CostModel {
public:
    static constexpr int32_t kRowsMax = 65;  // a root and all draft nodes

    // A guess that stands until something is measured: one row costs 1, further ones a tenth.
    CostModel();

    // Runs passes of several sizes on a sequence of its own. Takes well under a second for models of which a pass takes less than
    // 20 ms, a few passes for larger ones. Errors: exhausted.
    Status measure(model::Forward& forward);
    // One step of decoding took this long.
    void measured(int32_t rows, int32_t context, double verify_ms);
    // A step took this long in all and gave this many tokens.
    void earned(double step_ms, int32_t tokens);

    // Expected time of a pass.
    double verify_ms(int32_t rows, int32_t context) const;
    // Time per token in the long run, the best that is known: a node pays if its probability times this exceeds what it adds.
    double token_ms() const { return token_ms_; }

private:
    static constexpr size_t kContexts = 6;  // up to 1 Ki, 4 Ki, 16 Ki, 64 Ki, 256 Ki, beyond
    static size_t context_bucket(int32_t context);

    std::array<double, kRowsMax + 1> table_{};  // at a short context; non-decreasing
    std::array<double, kContexts> factor_{};    // of a context against a short one
    double token_ms_ = 0;
};

}  // namespace espalier::decode
