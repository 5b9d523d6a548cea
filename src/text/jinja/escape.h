// HTML escaping as markupsafe does it. Templates for chat rarely ask for it, but text marked safe escapes what is added to it.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text::jinja {

void append_escaped(std::string& out, std::string_view text);

}  // namespace espalier::text::jinja
