#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace espalier {
namespace {

struct Extent {
    int depth = 0;    // of the deepest value
    int members = 0;  // of the largest object
};

// Counted on the raw text before the recursive parser sees it: a million '[' must not exhaust the stack, nor a million keys the
// time.
Extent measure(std::string_view text, int depth_max) {
    Extent extent;
    std::vector<int> commas_in_object;  // per open bracket, -1 for an array
    bool in_string = false;
    for (size_t i = 0; i < text.size() && extent.depth <= depth_max; ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            commas_in_object.push_back(c == '{' ? 0 : -1);
            extent.depth = std::max(extent.depth, static_cast<int>(commas_in_object.size()));
        } else if ((c == ']' || c == '}') && !commas_in_object.empty()) {
            commas_in_object.pop_back();
        } else if (c == ',' && !commas_in_object.empty() && commas_in_object.back() >= 0) {
            extent.members = std::max(extent.members, ++commas_in_object.back() + 1);
        }
    }
    return extent;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, int depth_max) {
    const Extent extent = measure(text, depth_max);
    if (extent.depth > depth_max) return invalid_input(fmt::format("{}: JSON nests more than {} levels deep", what, depth_max));
    if (extent.members > kJsonMembersMax) {
        return invalid_input(fmt::format("{}: a JSON object has more than {} members", what, kJsonMembersMax));
    }
    try {
        return Json::parse(text.begin(), text.end());
    } catch (const nlohmann::json::parse_error& e) {
        return invalid_input(fmt::format("{}: not valid JSON at byte {}", what, e.byte));
    } catch (const nlohmann::json::exception& e) {
        return invalid_input(fmt::format("{}: not valid JSON ({})", what, e.what()));
    }
}

std::string dump_json(const Json& value, int indent) {
    return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace espalier
