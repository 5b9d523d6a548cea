// Typing of argument values that arrive as raw text: which JSON types a parameter's schema allows, and the JSON that a text
// stands for under them.
//
// A value never becomes a type that the schema does not allow, except text: whatever cannot be read as an allowed type is passed
// on as a string, so that the client's own validation speaks and nothing is lost. Digits of integers are copied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/chat_value.h"

namespace espalier::text {

class TypeSet {
public:
    enum Bit : uint8_t { string = 1, integer = 2, number = 4, boolean = 8, null = 16, array = 32, object = 64 };

    TypeSet() = default;  // untyped: the schema says nothing
    explicit TypeSet(uint8_t bits) : bits_(bits) {}
    uint8_t bits() const { return bits_; }
    bool is_untyped() const { return bits_ == 0; }
    bool has(Bit bit) const { return (bits_ & bit) != 0; }
    bool is_string_only() const { return bits_ == string; }

private:
    uint8_t bits_ = 0;
};

// The types that `schema` allows; references ("#/…") are looked up in `root`. Untyped for anything not understood, and beyond a
// bound on the work (reference cycles, huge unions).
TypeSet schema_types(const Value& schema, const Value& root);

struct TypedValue {
    std::string json;
    const char* repair = nullptr;  // kind, if the text was not plainly of an allowed type
};

// The JSON of a complete value.
TypedValue type_value(std::string_view text, TypeSet types);

// Whether a value that begins with `text` may still become something else than a string. Once false it stays false for every
// longer text, so the value can be streamed. `n_known`: for this much of `text` the answer was true.
bool may_be_non_string(std::string_view text, size_t n_known, TypeSet types);

}  // namespace espalier::text
