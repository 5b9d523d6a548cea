// Environment variables. Only main and the objects it wires read them; everything below is given its configuration.
#pragma once

#include <optional>
#include <string>

namespace espalier {

// The value of an environment variable; nothing when it is not set. Call before threads start.
std::optional<std::string> environment_variable(const char* name);

}  // namespace espalier
