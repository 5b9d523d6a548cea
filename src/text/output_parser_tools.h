// The tools of a request as the output parser asks about them: is this name declared, is this a parameter of it, of which types.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_value.h"
#include "text/output_parser_types.h"

namespace espalier::text {

// A tool's function, {"type": "function", "function": {"name", "parameters"}} or the inner object. Points into `tool`.
struct DeclaredFunction {
    const std::string* name = nullptr;
    const Value* parameters = nullptr;  // the JSON schema; null if there is none
};
// Nothing if it has no name.
std::optional<DeclaredFunction> declared_function(const Value& tool);

class DeclaredTool {
public:
    // `parameters`: the tool's JSON schema, kept.
    explicit DeclaredTool(Value parameters) : parameters_(std::move(parameters)) {}

    bool has_parameter(std::string_view key) const { return find_property(key) != nullptr; }
    // String for what the schema does not declare.
    TypeSet parameter_types(std::string_view key) const;

private:
    const Value* find_property(std::string_view key) const;

    Value parameters_;
};

class DeclaredTools {
public:
    // Those that are no function are ignored.
    explicit DeclaredTools(const std::vector<Value>& tools);

    bool empty() const { return tools_.empty(); }
    const DeclaredTool* find(std::string_view name) const;

private:
    std::map<std::string, DeclaredTool, std::less<>> tools_;
};

}  // namespace espalier::text
