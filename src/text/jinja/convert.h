// Value (what the caller gives) to Val (what the template computes with).
#pragma once

#include "text/chat_value.h"
#include "text/jinja/runtime.h"

namespace espalier::text::jinja {

[[nodiscard]] bool to_val(Runtime& rt, const Value& value, Val& out, int depth = 0);

}  // namespace espalier::text::jinja
