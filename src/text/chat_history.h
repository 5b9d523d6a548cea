// A client's history in the shape that chat templates expect, with the repairs that strict templates need.
//
// Always done, because no template accepts the wire form:
//  - developer is system; content null or absent is "".
//  - Arguments of past calls become objects. Empty text and null are {}; an object wrapped in a JSON string is taken out; what is
//    no object at all is kept as {"raw_arguments": text}, so that the model still sees what it once wrote.
//  - Per-request header lines in system messages are removed (known_volatile_headers below).
// Done only when the template refuses the history as it is, one step at a time (HistoryLevel).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_request.h"

namespace espalier::text {

enum class HistoryLevel {
    as_sent,       // order and roles untouched
    system_first,  // leading system messages are one; a later one becomes a user message where it stands, which leaves
                   // everything before it, and so the prefix cache, as it was
    user_query,    // and an empty user message follows the system message if nobody asked anything
};

// The template's `messages`.
ValueList build_messages(const ChatRequest& request, HistoryLevel level, HistoryRepairs& repairs);

// Whether a user message asks something, that is, is not a tool's response in disguise.
bool has_user_query(const std::vector<ChatMessage>& messages);

// The text of past call arguments as the object that templates iterate over; adds to repairs.arguments_wrapped.
Value arguments_object(std::string_view arguments, HistoryRepairs& repairs);

// Removes "x-anthropic-billing-header: name=value; …" from the beginning of lines: its cch value changes with every request.
std::string without_volatile_headers(std::string_view text, HistoryRepairs& repairs);

}  // namespace espalier::text
