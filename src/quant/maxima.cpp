#include "quant/maxima.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/recipe.h"
#include "quant/weight_rules.h"

namespace espalier::quant {

void Maxima::observe(model::ActivationSite site, const model::ActivationRows& rows) {
    add(activation_key(layer_, site), rows);
}

void Maxima::add(const std::string& key, const model::ActivationRows& rows) {
    float& largest = values_[key];
    for (int64_t row = 0; row < rows.n_rows; ++row) {
        largest = std::max(largest, largest_magnitude(rows.rows + row * rows.stride, rows.width));
    }
}

Result<float> Maxima::get(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return internal_error(fmt::format("calibration did not see '{}'", key));
    if (!std::isfinite(found->second)) {
        return invalid_input(
            fmt::format("activations of '{}' are not finite on the calibration texts; are the weights damaged?", key));
    }
    return found->second;
}

Json Maxima::to_json() const {
    Json json = Json::object();
    // JSON has no infinity.
    for (const auto& [key, value] : values_) json[key] = std::isfinite(value) ? Json(value) : Json(nullptr);
    return json;
}

Maxima Maxima::from_json(const Json& json) {
    Maxima maxima;
    for (const auto& [key, value] : json.items()) {
        maxima.values_[key] = value.is_number() ? value.get<float>() : std::numeric_limits<float>::infinity();
    }
    return maxima;
}

}  // namespace espalier::quant
