// The messages array of an OpenAI chat request.
#pragma once

#include <vector>

#include "server/json_fields.h"
#include "text/chat_request.h"

namespace espalier::server {

void read_messages(FieldReader& reader, const ServerLimits& limits, ReadState& state, std::vector<text::ChatMessage>& out);

}  // namespace espalier::server
