// The recorded conversations of the agentic workload, and the requests that the official client builds from them.
//
// A file is JSON lines: user (first turn: content, system, tools), assistant (reasoning_content, tool_calls, optional content)
// and tool rows (tool_results), grouped by conversation, turns ascending. Every user or tool row is one request; history always
// holds the recorded replies, never the model's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_value.h"

namespace espalier::bench {

struct DatasetRow {
    int64_t turn = 0;
    std::string role;  // user, assistant, tool
    Json fields;       // the row as read
    bool is_request() const { return role != "assistant"; }
};

struct Conversation {
    std::string id;
    std::string system;  // "" = none
    Json tools;          // null = none
    std::vector<DatasetRow> rows;
};

struct Dataset {
    std::vector<Conversation> conversations;
    size_t n_requests() const;
};

// Errors: invalid_input with the line number and what was expected.
Result<Dataset> parse_dataset(std::string_view jsonl, std::string_view what);
Result<Dataset> load_dataset(const std::string& path);

// The messages of a conversation up to some row, in the two forms that are needed: JSON text as sent (no spaces, fields in the
// client's order, absent content left out) and template values (arguments parsed to objects).
class History {
public:
    explicit History(const Conversation& conversation);

    // Appends the messages of the next row.
    void append(const DatasetRow& row);

    // "[{…},…]"
    std::string messages_json() const { return "[" + json_ + "]"; }
    const text::ValueList& messages() const { return values_; }
    size_t n_messages() const { return values_.size(); }

private:
    void add(const Json& message);

    std::string json_;  // without the brackets
    text::ValueList values_;
};

// A message as sent -> as templates see it: the JSON text of arguments becomes an object where it is one.
text::Value template_message(const Json& message);
// The message of a recorded assistant row as sent.
Json assistant_message(const DatasetRow& row);

}  // namespace espalier::bench
