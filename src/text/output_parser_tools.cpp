#include "text/output_parser_tools.h"

namespace espalier::text {

std::optional<DeclaredFunction> declared_function(const Value& tool) {
    const Value* function = tool.find("function");
    if (function == nullptr) function = &tool;
    const Value* name = function->find("name");
    if (name == nullptr || name->as_string() == nullptr || name->as_string()->empty()) return std::nullopt;
    return DeclaredFunction{name->as_string(), function->find("parameters")};
}

const Value* DeclaredTool::find_property(std::string_view key) const {
    const Value* properties = parameters_.find("properties");
    return properties == nullptr ? nullptr : properties->find(key);
}

TypeSet DeclaredTool::parameter_types(std::string_view key) const {
    const Value* schema = find_property(key);
    return schema == nullptr ? TypeSet(TypeSet::string) : schema_types(*schema, parameters_);
}

DeclaredTools::DeclaredTools(const std::vector<Value>& tools) {
    for (const Value& tool : tools) {
        const auto function = declared_function(tool);
        if (!function) continue;
        tools_.try_emplace(*function->name, DeclaredTool(function->parameters == nullptr ? Value() : *function->parameters));
    }
}

const DeclaredTool* DeclaredTools::find(std::string_view name) const {
    const auto found = tools_.find(name);
    return found == tools_.end() ? nullptr : &found->second;
}

}  // namespace espalier::text
