#include "bench/bfcl/python.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/unicode.h"

namespace espalier::bench {
namespace {

using text::Value;
namespace jinja = text::jinja;

bool is_number(PyType type) {
    return type == PyType::boolean || type == PyType::integer || type == PyType::real;
}

// Integers as decimal digits, so that 2^63 and beyond compare exactly.
std::string integer_digits(const Value& value) {
    if (const bool* b = value.as_bool()) return *b ? "1" : "0";
    if (const int64_t* i = value.as_int()) return std::to_string(*i);
    return value.as_big_int()->digits;
}

bool numbers_equal(const Value& a, const Value& b) {
    const double* real_a = a.as_float();
    const double* real_b = b.as_float();
    if (real_a != nullptr && real_b != nullptr) return *real_a == *real_b;
    if (real_a == nullptr && real_b == nullptr) return integer_digits(a) == integer_digits(b);
    const double real = real_a != nullptr ? *real_a : *real_b;
    if (!std::isfinite(real) || real != std::trunc(real)) return false;
    const std::string digits = real == 0 ? "0" : fmt::format("{:.0f}", real);
    return digits == integer_digits(real_a != nullptr ? b : a);
}

bool lists_equal(const text::ValueList& a, const text::ValueList& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), py_equal);
}

bool dicts_equal(const Value& a, const Value& b) {
    if (a.as_dict()->size() != b.as_dict()->size()) return false;
    return std::ranges::all_of(*a.as_dict(), [&](const auto& entry) {
        const Value* other = b.find(entry.first);
        return other != nullptr && py_equal(entry.second, *other);
    });
}

// Digits with single underscores between them; appends the digits to out.
bool read_digits(std::string_view& rest, std::string& out) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (rest.empty() || !is_digit(rest.front())) return false;
    size_t i = 0;
    while (i < rest.size() && (is_digit(rest[i]) || (rest[i] == '_' && i + 1 < rest.size() && is_digit(rest[i + 1])))) {
        if (rest[i] != '_') out += rest[i];
        ++i;
    }
    rest.remove_prefix(i);
    return true;
}

Value integer_value(bool is_negative, std::string digits) {
    digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
    if (is_negative && digits != "0") digits.insert(0, "-");
    int64_t value = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (ec == std::errc() && end == digits.data() + digits.size()) return Value(value);
    return Value(text::BigInt{std::move(digits)});
}

}  // namespace

Error py_raise(std::string_view exception) {
    return invalid_input(std::string(exception));
}

PyType py_type(const Value& value) {
    if (value.as_bool() != nullptr) return PyType::boolean;
    if (value.as_int() != nullptr || value.as_big_int() != nullptr) return PyType::integer;
    if (value.as_float() != nullptr) return PyType::real;
    if (value.as_string() != nullptr) return PyType::string;
    if (value.as_list() != nullptr) return PyType::list;
    if (value.as_dict() != nullptr) return PyType::dict;
    return PyType::none;
}

bool py_equal(const Value& a, const Value& b) {
    const PyType type_a = py_type(a);
    const PyType type_b = py_type(b);
    if (is_number(type_a) && is_number(type_b)) return numbers_equal(a, b);
    if (type_a != type_b) return false;
    if (type_a == PyType::string) return *a.as_string() == *b.as_string();
    if (type_a == PyType::list) return lists_equal(*a.as_list(), *b.as_list());
    if (type_a == PyType::dict) return dicts_equal(a, b);
    return true;
}

bool py_truthy(const Value& value) {
    switch (py_type(value)) {
        case PyType::none: return false;
        case PyType::boolean: return *value.as_bool();
        case PyType::integer: return value.as_big_int() != nullptr || *value.as_int() != 0;
        case PyType::real: return *value.as_float() != 0;
        case PyType::string: return !value.as_string()->empty();
        case PyType::list: return !value.as_list()->empty();
        case PyType::dict: return !value.as_dict()->empty();
    }
    return false;
}

Result<bool> py_in(const Value& item, const Value& container) {
    if (const text::ValueList* list = container.as_list()) {
        return std::ranges::any_of(*list, [&](const Value& element) { return py_equal(item, element); });
    }
    if (container.as_dict() != nullptr) {
        const PyType type = py_type(item);
        if (type == PyType::list || type == PyType::dict) return py_raise("TypeError");
        return type == PyType::string && container.find(*item.as_string()) != nullptr;
    }
    if (const std::string* text = container.as_string()) {
        if (item.as_string() == nullptr) return py_raise("TypeError");
        return text->find(*item.as_string()) != std::string::npos;
    }
    return py_raise("TypeError");
}

Result<std::vector<Value>> py_list(const Value& value) {
    std::vector<Value> items;
    if (const text::ValueList* list = value.as_list()) return *list;
    if (const text::ValueDict* dict = value.as_dict()) {
        for (const auto& [key, member] : *dict) items.emplace_back(key);
        return items;
    }
    if (const std::string* text = value.as_string()) {
        for (const std::string_view character : jinja::split_code_points(*text)) items.emplace_back(character);
        return items;
    }
    return py_raise("TypeError");
}

Result<Value> py_item(const Value& value, std::string_view key) {
    if (value.as_dict() == nullptr) return py_raise("TypeError");
    const Value* member = value.find(key);
    if (member == nullptr) return py_raise("KeyError");
    return *member;
}

std::string_view py_strip(std::string_view text) {
    return jinja::strip(text, nullptr, jinja::Side::both);
}

std::optional<Value> py_int(std::string_view text) {
    std::string_view rest = py_strip(text);
    const bool is_negative = rest.starts_with('-');
    if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
    std::string digits;
    if (!read_digits(rest, digits) || !rest.empty()) return std::nullopt;
    return integer_value(is_negative, std::move(digits));
}

std::optional<double> py_float(std::string_view text) {
    std::string_view rest = py_strip(text);
    const bool is_negative = rest.starts_with('-');
    if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
    const double sign = is_negative ? -1.0 : 1.0;
    std::string word(rest);
    std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    if (word == "inf" || word == "infinity") return sign * std::numeric_limits<double>::infinity();
    if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
    std::string number;
    const bool has_whole = read_digits(rest, number);
    bool has_fraction = false;
    if (rest.starts_with('.')) {
        rest.remove_prefix(1);
        number += '.';
        has_fraction = read_digits(rest, number);
    }
    if (!has_whole && !has_fraction) return std::nullopt;
    if (rest.starts_with('e') || rest.starts_with('E')) {
        rest.remove_prefix(1);
        number += 'e';
        if (rest.starts_with('-') || rest.starts_with('+')) {
            number += rest.front();
            rest.remove_prefix(1);
        }
        if (!read_digits(rest, number)) return std::nullopt;
    }
    if (!rest.empty()) return std::nullopt;
    return sign * std::strtod(number.c_str(), nullptr);
}

std::string py_inner(std::string_view text) {
    const std::vector<std::string_view> characters = jinja::split_code_points(text);
    if (characters.size() < 3) return "";
    return std::string(
        text.substr(characters.front().size(), text.size() - characters.front().size() - characters.back().size()));
}

}  // namespace espalier::bench
