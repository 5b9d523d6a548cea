// Lets a calibrating quantiser see what enters the linear modules and the KV cache.
#pragma once

#include <cstdint>

namespace espalier::model {

enum class ActivationSite : uint8_t {
    mixer_in,   // q, k, v projections; recurrent input projections
    mixer_out,  // o_proj, out_proj
    mlp_in,     // gate, up
    mlp_out,    // down
    mtp_fc,
    keys,  // after norm and rotation
    values,
};

struct ActivationRows {
    const float* rows = nullptr;
    int64_t stride = 0;  // floats between rows
    int64_t n_rows = 0;
    int64_t width = 0;
};

// Called on the engine thread between parallel regions, layer after layer. Rows are valid during the call only.
class ActivationObserver {
public:
    virtual ~ActivationObserver() = default;
    virtual void observe(ActivationSite site, const ActivationRows& rows) = 0;
};

}  // namespace espalier::model
