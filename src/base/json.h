// The one JSON type of the project: nlohmann's ordered_json, because key order is visible in rendered prompts and in
// results. Parse outside bytes with parse_json (never throws, depth-limited), never with Json::parse directly.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace espalier {

using Json = nlohmann::ordered_json;

inline constexpr int kJsonDepthMax = 256;
// Members of one object: key order is kept by linear search, so more would take quadratic time.
inline constexpr int kJsonMembersMax = 32768;

// Parses one JSON document. Errors: invalid_input with "what: byte N: reason", when the text is not JSON, is not UTF-8, or nests
// deeper than depth_max, or an object has more than kJsonMembersMax members. `what` names the source ("request body",
// "config.json").
Result<Json> parse_json(std::string_view text, std::string_view what, int depth_max = kJsonDepthMax);

// Serialises with UTF-8 kept as it is and invalid bytes replaced by U+FFFD, so that it never throws. indent < 0: one line.
std::string dump_json(const Json& value, int indent = -1);

}  // namespace espalier
