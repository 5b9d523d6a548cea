#include "text/tool_outline.h"

#include <algorithm>

#include "text/output_parser_tools.h"

namespace espalier::text {
namespace {

bool is_required(const Value& schema, const std::string& name) {
    const Value* required = schema.find("required");
    if (required == nullptr || required->as_list() == nullptr) return false;
    return std::any_of(required->as_list()->begin(), required->as_list()->end(),
                       [&](const Value& entry) { return entry.as_string() != nullptr && *entry.as_string() == name; });
}

std::vector<std::string> outline_parameters(const Value& schema) {
    std::vector<std::string> names;
    const Value* properties = schema.find("properties");
    if (properties == nullptr || properties->as_dict() == nullptr) return names;
    for (const auto& [name, property] : *properties->as_dict()) names.push_back(name);
    std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return is_required(schema, name); });
    return names;
}

}  // namespace

std::vector<ToolOutline> outline_tools(const std::vector<Value>& tools) {
    std::vector<ToolOutline> outlines;
    for (const Value& tool : tools) {
        const auto function = declared_function(tool);
        if (!function) continue;
        outlines.push_back({*function->name, function->parameters != nullptr ? outline_parameters(*function->parameters)
                                                                             : std::vector<std::string>()});
    }
    return outlines;
}

}  // namespace espalier::text
