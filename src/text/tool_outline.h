// The names in a request's tools, without their schemas: what a draft of a call's fixed text needs.
#pragma once

#include <string>
#include <vector>

#include "text/chat_value.h"

namespace espalier::text {

struct ToolOutline {
    std::string name;
    std::vector<std::string> parameters;  // required ones first, each group in the order of the schema
    bool operator==(const ToolOutline&) const = default;
};

// Tools that are no function are left out.
std::vector<ToolOutline> outline_tools(const std::vector<Value>& tools);

}  // namespace espalier::text
