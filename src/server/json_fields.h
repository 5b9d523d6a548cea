// Reading a request body field by field. The rules of every dialect: null counts as absent, a wrong type is a 400 that names
// the JSON path, an unknown field is ignored with one warning per name.
//
// Bodies are parsed to text::Value rather than the JSON library's type: key order, digits of long integers and the
// int/float difference of tool schemas are visible in the prompt.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/options.h"
#include "text/chat_value.h"

namespace espalier::server {

// Parses a body after counting nesting and object members, which the parsers behind it pay for in stack and in time.
// Error: 400 with what was found.
std::optional<ApiError> parse_body(std::string_view body, const ServerLimits& limits, text::Value& out);

// "a string", "an integer", …, for messages.
std::string_view kind_of(const text::Value& value);

// What reading a request collects. The first error wins.
struct ReadState {
    std::optional<ApiError> error;
    std::vector<std::string> unknown_fields;  // JSON paths without indices

    void fail(ApiError found) {
        if (!error) error = std::move(found);
    }
};

// The fields of one object. Every getter marks its name as known; finish() reports the rest.
class FieldReader {
public:
    // path: "" for the body itself, "messages[3]", …. Both references and every name asked for must outlive the reader.
    FieldReader(const text::ValueDict& object, std::string path, ReadState& state);

    // The member, or nullptr if absent or null.
    const text::Value* get(std::string_view name);
    // Accepted and without effect here.
    void ignore(std::initializer_list<std::string_view> names);
    // Known, but not served: 400 unsupported_parameter unless absent or null.
    void unsupported(std::string_view name, std::string_view why);

    // Each leaves `out` alone when the field is absent, and fails when type or range is wrong. True if a value was stored.
    bool boolean(std::string_view name, bool& out);
    bool integer(std::string_view name, int64_t min, int64_t max, int64_t& out);
    bool number(std::string_view name, double min, double max, float& out);
    bool string(std::string_view name, std::string& out);
    const text::ValueList* list(std::string_view name);
    const text::ValueDict* dict(std::string_view name);

    std::string path(std::string_view name) const;
    void wrong_type(std::string_view name, std::string_view expected, const text::Value& found);
    void finish();

private:
    const text::ValueDict& object_;
    std::string path_;
    ReadState& state_;
    std::set<std::string_view> known_;
};

}  // namespace espalier::server
