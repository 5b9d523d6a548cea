#include "base/json.h"

#include <fmt/format.h>

namespace espalier {
namespace {

// Nesting is counted on the raw text before the recursive parser sees it: a million '[' must not exhaust the stack.
int nesting_depth(std::string_view text) {
    int depth = 0;
    int deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return deepest;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, int depth_max) {
    if (const int depth = nesting_depth(text); depth > depth_max) {
        return invalid_input(fmt::format("{}: JSON nests {} levels deep, the limit is {}", what, depth, depth_max));
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
