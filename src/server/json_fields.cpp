#include "server/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace espalier::server {
namespace {

struct Shape {
    int depth = 0;
    int members = 0;  // of the largest object
    int values = 0;   // about: every value but the last of its container is followed by a comma
};

// Counts on the raw text, without recursion; text that is not JSON gives some numbers and fails in the parser.
Shape shape_of(std::string_view text, int depth_max) {
    Shape shape;
    std::vector<int> members{0};
    for (size_t i = 0; i < text.size(); ++i) {
        switch (text[i]) {
            case '"':
                for (++i; i < text.size() && text[i] != '"'; ++i) {
                    if (text[i] == '\\') ++i;
                }
                break;
            case '[':
            case '{':
                ++shape.values;
                members.push_back(0);
                shape.depth = std::max(shape.depth, static_cast<int>(members.size()) - 1);
                if (shape.depth > depth_max) return shape;
                break;
            case ']':
            case '}':
                if (members.size() > 1) members.pop_back();
                break;
            case ',': ++shape.values; break;
            case ':': shape.members = std::max(shape.members, ++members.back()); break;
            default: break;
        }
    }
    return shape;
}

std::string strip_indices(const std::string& path) {
    std::string out;
    bool in_index = false;
    for (const char c : path) {
        if (c == '[') in_index = true;
        if (!in_index) out += c;
        if (c == ']') {
            in_index = false;
            out += "[]";
        }
    }
    return out;
}

}  // namespace

std::optional<ApiError> parse_body(std::string_view body, const ServerLimits& limits, text::Value& out) {
    const Shape shape = shape_of(body, limits.json_depth);
    if (shape.depth > limits.json_depth) {
        return bad_value("", fmt::format("request body: JSON nests more than {} levels deep", limits.json_depth));
    }
    if (shape.members > limits.object_members) {
        return bad_value(
            "", fmt::format("request body: an object has {} members, the limit is {}", shape.members, limits.object_members));
    }
    if (shape.values > limits.json_values) {
        return bad_value("",
                         fmt::format("request body: about {} JSON values, the limit is {}", shape.values, limits.json_values));
    }
    Result<text::Value> parsed = text::parse_json_value(body, "request body");
    if (!parsed) return api_error_from(parsed.error());
    if (parsed->as_dict() == nullptr) {
        return bad_value("", fmt::format("request body: expected a JSON object, found {}", kind_of(*parsed)));
    }
    out = *std::move(parsed);
    return std::nullopt;
}

std::string_view kind_of(const text::Value& value) {
    if (value.is_none()) return "null";
    if (value.as_bool() != nullptr) return "a boolean";
    if (value.as_int() != nullptr || value.as_big_int() != nullptr) return "an integer";
    if (value.as_float() != nullptr) return "a number";
    if (value.as_string() != nullptr) return "a string";
    if (value.as_list() != nullptr) return "an array";
    if (value.as_dict() != nullptr) return "an object";
    return "nothing";
}

FieldReader::FieldReader(const text::ValueDict& object, std::string path, ReadState& state)
    : object_(object), path_(std::move(path)), state_(state) {}

const text::Value* FieldReader::get(std::string_view name) {
    known_.insert(name);
    for (const auto& [key, value] : object_) {
        if (key == name) return value.is_none() ? nullptr : &value;
    }
    return nullptr;
}

void FieldReader::ignore(std::initializer_list<std::string_view> names) {
    known_.insert(names.begin(), names.end());
}

void FieldReader::unsupported(std::string_view name, std::string_view why) {
    if (get(name) != nullptr) state_.fail(unsupported_parameter(path(name), fmt::format("{}: {}", path(name), why)));
}

bool FieldReader::boolean(std::string_view name, bool& out) {
    const text::Value* value = get(name);
    if (value == nullptr) return false;
    if (value->as_bool() == nullptr) {
        wrong_type(name, "a boolean", *value);
        return false;
    }
    out = *value->as_bool();
    return true;
}

bool FieldReader::integer(std::string_view name, int64_t min, int64_t max, int64_t& out) {
    const text::Value* value = get(name);
    if (value == nullptr) return false;
    int64_t found = 0;
    if (value->as_int() != nullptr) {
        found = *value->as_int();
    } else if (value->as_float() != nullptr && std::abs(*value->as_float()) < 1e15 &&
               std::nearbyint(*value->as_float()) == *value->as_float()) {
        found = static_cast<int64_t>(*value->as_float());  // 64.0, as some clients write counts
    } else {
        wrong_type(name, "an integer", *value);
        return false;
    }
    if (found < min || found > max) {
        state_.fail(
            bad_value(path(name), fmt::format("{}: expected an integer from {} to {}, found {}", path(name), min, max, found)));
        return false;
    }
    out = found;
    return true;
}

bool FieldReader::number(std::string_view name, double min, double max, float& out) {
    const text::Value* value = get(name);
    if (value == nullptr) return false;
    double found = 0;
    if (value->as_float() != nullptr) {
        found = *value->as_float();
    } else if (value->as_int() != nullptr) {
        found = static_cast<double>(*value->as_int());
    } else {
        wrong_type(name, "a number", *value);
        return false;
    }
    if (!(found >= min && found <= max)) {  // also refuses NaN
        state_.fail(
            bad_value(path(name), fmt::format("{}: expected a number from {} to {}, found {}", path(name), min, max, found)));
        return false;
    }
    out = static_cast<float>(found);
    return true;
}

bool FieldReader::string(std::string_view name, std::string& out) {
    const text::Value* value = get(name);
    if (value == nullptr) return false;
    if (value->as_string() == nullptr) {
        wrong_type(name, "a string", *value);
        return false;
    }
    out = *value->as_string();
    return true;
}

const text::ValueList* FieldReader::list(std::string_view name) {
    const text::Value* value = get(name);
    if (value == nullptr) return nullptr;
    if (value->as_list() == nullptr) wrong_type(name, "an array", *value);
    return value->as_list();
}

const text::ValueDict* FieldReader::dict(std::string_view name) {
    const text::Value* value = get(name);
    if (value == nullptr) return nullptr;
    if (value->as_dict() == nullptr) wrong_type(name, "an object", *value);
    return value->as_dict();
}

std::string FieldReader::path(std::string_view name) const {
    return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::wrong_type(std::string_view name, std::string_view expected, const text::Value& found) {
    ApiError error = bad_value(path(name), fmt::format("{}: expected {}, found {}", path(name), expected, kind_of(found)));
    error.code = "invalid_type";
    state_.fail(std::move(error));
}

void FieldReader::finish() {
    for (const auto& [key, value] : object_) {
        if (!known_.contains(key)) state_.unknown_fields.push_back(strip_indices(path(key)));
    }
}

}  // namespace espalier::server
