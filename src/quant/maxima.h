// The largest magnitudes seen per kind of activation: all that "max" calibration keeps.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "model/observer.h"

namespace espalier::quant {

class Maxima final : public model::ActivationObserver {
public:
    // Names the layer that runs next: "layers.3", "mtp.layers.0".
    void set_layer(std::string layer) { layer_ = std::move(layer); }
    void observe(model::ActivationSite site, const model::ActivationRows& rows) override;
    void add(const std::string& key, const model::ActivationRows& rows);

    // Errors: invalid_input when nothing was seen under the key, or something that is not finite.
    Result<float> get(const std::string& key) const;

    Json to_json() const;
    static Maxima from_json(const Json& json);

private:
    std::string layer_;
    std::map<std::string, float> values_;
};

}  // namespace espalier::quant
