// Value: the data that templates see. Python's data model where templates can tell the difference: dictionaries keep key
// order, integers keep their digits however many, floats print as repr, undefined is not none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace espalier::text {

class Value;
using ValueList = std::vector<Value>;
using ValueDict = std::vector<std::pair<std::string, Value>>;  // insertion order; keys are unique

// An integer too long for int64: its digits as written, with '-' if negative.
struct BigInt {
    std::string digits;
    bool operator==(const BigInt&) const = default;
};

// Immutable and cheap to copy (containers are shared).
class Value {
public:
    struct Undefined {
        bool operator==(const Undefined&) const = default;
    };
    struct None {
        bool operator==(const None&) const = default;
    };

    Value() = default;  // undefined
    static Value none() { return Value(Storage(None{})); }
    Value(bool value) : data_(value) {}                                                         // NOLINT: implicit on purpose
    Value(int64_t value) : data_(value) {}                                                      // NOLINT: implicit on purpose
    Value(int value) : data_(int64_t{value}) {}                                                 // NOLINT: implicit on purpose
    Value(double value) : data_(value) {}                                                       // NOLINT: implicit on purpose
    Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}  // NOLINT: implicit on purpose
    Value(std::string_view value) : Value(std::string(value)) {}                                // NOLINT: implicit on purpose
    Value(const char* value) : Value(std::string(value)) {}                                     // NOLINT: implicit on purpose
    explicit Value(BigInt value) : data_(std::make_shared<const BigInt>(std::move(value))) {}
    explicit Value(ValueList value) : data_(std::make_shared<const ValueList>(std::move(value))) {}
    explicit Value(ValueDict value) : data_(std::make_shared<const ValueDict>(std::move(value))) {}

    bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
    bool is_none() const { return std::holds_alternative<None>(data_); }
    const bool* as_bool() const { return std::get_if<bool>(&data_); }
    const int64_t* as_int() const { return std::get_if<int64_t>(&data_); }
    const double* as_float() const { return std::get_if<double>(&data_); }
    const std::string* as_string() const { return shared<std::string>(); }
    const BigInt* as_big_int() const { return shared<BigInt>(); }
    const ValueList* as_list() const { return shared<ValueList>(); }
    const ValueDict* as_dict() const { return shared<ValueDict>(); }

    // The string without a copy; null for another type.
    std::shared_ptr<const std::string> share_string() const {
        const auto* pointer = std::get_if<std::shared_ptr<const std::string>>(&data_);
        return pointer != nullptr ? *pointer : nullptr;
    }

    // The member of a dictionary, or nullptr (also when this is no dictionary).
    const Value* find(std::string_view key) const;

private:
    using Storage =
        std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<const BigInt>,
                     std::shared_ptr<const ValueList>, std::shared_ptr<const ValueDict>>;
    explicit Value(Storage data) : data_(std::move(data)) {}
    template <class T>
    const T* shared() const {
        const auto* pointer = std::get_if<std::shared_ptr<const T>>(&data_);
        return pointer != nullptr ? pointer->get() : nullptr;
    }
    Storage data_;
};

// Parses JSON text with key order, integer digits and the int/float difference kept. Duplicate keys: last value, first
// place (as Python). Accepts what Python's json accepts (NaN, Infinity included); half a surrogate pair becomes U+FFFD.
// Errors: invalid_input with the byte, also for text that is not UTF-8 and for nesting deeper than kJsonDepthMax.
Result<Value> parse_json_value(std::string_view json, std::string_view what);

// json.dumps(value, ensure_ascii=False): ", " and ": " separators, insertion order, no HTML escaping. Undefined is an error.
Result<std::string> to_json_text(const Value& value);

}  // namespace espalier::text
