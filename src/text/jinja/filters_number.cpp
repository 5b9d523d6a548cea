// Filters that make numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/big_integer.h"
#include "text/jinja/filters.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

constexpr int64_t kDecimalsMax = 300;

int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Removes single underscores between digits; false if one is elsewhere.
bool drop_underscores(std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') continue;
        if (i == 0 || i + 1 == text.size() || digit_value(text[i - 1]) > 35 || digit_value(text[i + 1]) > 35) return false;
    }
    std::erase(text, '_');
    return true;
}

bool float_to_integer(Runtime& rt, double number, Val& out) {
    if (std::isnan(number)) return rt.fail(ErrorKind::value_error, "cannot convert float NaN to integer");
    if (std::isinf(number)) return rt.fail(ErrorKind::overflow, "cannot convert float infinity to integer");
    out = integer_from_digits(fmt::format("{:.0f}", std::trunc(number)));
    return true;
}

// Python's round(number, decimals): exact decimal value, ties to even, which is what printf does.
double round_decimal(double number, int64_t decimals) {
    if (!std::isfinite(number) || decimals > kDecimalsMax) return number;
    if (decimals < 0) {
        const double scale = std::pow(10.0, static_cast<double>(-decimals));
        return std::isinf(scale) ? std::copysign(0.0, number) : std::nearbyint(number / scale) * scale;
    }
    return parse_float(fmt::format("{:.{}f}", number, decimals));
}

bool round_integer(const Val& value, int64_t decimals, Val& out) {
    int64_t number = 0;
    out = value.as_bool() != nullptr ? Val(int64_t{*value.as_bool() ? 1 : 0}) : value;
    if (decimals >= 0 || !to_int64(value, number)) return true;
    if (decimals < -18) {
        out = int64_t{0};
        return true;
    }
    int64_t scale = 1;
    for (int64_t i = 0; i > decimals; --i) scale *= 10;
    int64_t rest = number % scale;
    if (rest < 0) rest += scale;
    const int64_t floored = number - rest;
    const bool is_odd = (floored / scale) % 2 != 0;
    const bool rounds_up = rest > scale / 2 || (rest == scale / 2 && is_odd);
    out = add_integers(Val(floored), Val(rounds_up ? scale : int64_t{0}));
    return true;
}

}  // namespace

std::optional<Val> parse_python_int(std::string_view spelled, int64_t base) {
    std::string text(strip(spelled, nullptr, Side::both));
    bool is_negative = false;
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
        is_negative = text[0] == '-';
        text.erase(0, 1);
    }
    if (text.size() > 2 && text[0] == '0') {
        const char letter = static_cast<char>(text[1] | 0x20);
        const int64_t prefix_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
        if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
            base = prefix_base;
            text.erase(0, text[2] == '_' ? 3 : 2);
        }
    }
    if (base == 0) base = 10;
    if (base < 2 || base > 36 || text.empty() || text.size() > kIntegerDigitsMax || !drop_underscores(text)) return std::nullopt;
    Val value = int64_t{0};
    for (const char c : text) {
        if (digit_value(c) >= base) return std::nullopt;
        if (base != 10) value = add_integers(multiply_integers(value, Val(base)), Val(int64_t{digit_value(c)}));
    }
    if (base == 10) value = integer_from_digits(text);
    return is_negative ? negate_integer(value) : value;
}

std::optional<double> parse_python_float(std::string_view spelled) {
    std::string text = to_lower(strip(spelled, nullptr, Side::both));
    double sign = 1;
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
        sign = text[0] == '-' ? -1 : 1;
        text.erase(0, 1);
    }
    if (text == "inf" || text == "infinity") return sign * parse_float("inf");
    if (text == "nan") return parse_float("nan");
    if (!drop_underscores(text)) return std::nullopt;
    size_t i = 0;
    const auto digits = [&] {
        const size_t begin = i;
        while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
        return i - begin;
    };
    size_t n = digits();
    if (i < text.size() && text[i] == '.') {
        ++i;
        n += digits();
    }
    if (n == 0) return std::nullopt;
    if (i < text.size() && text[i] == 'e') {
        ++i;
        if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
        if (digits() == 0) return std::nullopt;
    }
    if (i != text.size()) return std::nullopt;
    return sign * parse_float(text);
}

bool filter_abs(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "abs", args, {}, 0, bound)) return false;
    if (is_integer(value)) {
        const std::string digits = integer_digits(value);
        out = integer_from_digits(digits[0] == '-' ? digits.substr(1) : digits);
        return true;
    }
    if (const double* number = value.as_float()) {
        out = std::fabs(*number);
        return true;
    }
    return rt.fail_type(fmt::format("bad operand type for abs(): '{}'", type_name(value)));
}

bool filter_float(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "float", args, {"default"}, 0, bound)) return false;
    if (value.is_undefined()) return rt.fail_undefined(value);
    double number = 0;
    if (to_double(value, number)) {
        out = number;
        return true;
    }
    if (const std::string* text = value.as_string()) {
        if (const auto parsed = parse_python_float(*text)) {
            out = *parsed;
            return true;
        }
    }
    out = bound[0] != nullptr ? *bound[0] : Val(0.0);
    return true;
}

bool filter_int(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "int", args, {"default", "base"}, 0, bound)) return false;
    if (value.is_undefined()) return rt.fail_undefined(value);
    out = bound[0] != nullptr ? *bound[0] : Val(int64_t{0});
    if (is_integer(value)) {
        out = integer_from_digits(integer_digits(value));
        return true;
    }
    if (const double* number = value.as_float()) {
        if (std::isnan(*number)) return true;
        return float_to_integer(rt, *number, out);
    }
    const std::string* text = value.as_string();
    if (text == nullptr) return true;
    int64_t base = 10;
    if (bound[1] != nullptr && !to_integer(rt, *bound[1], base)) return false;
    if (auto parsed = parse_python_int(*text, base)) {
        out = *parsed;
        return rt.charge_steps(text->size());
    }
    const auto number = parse_python_float(*text);
    if (!number || !std::isfinite(*number)) return true;
    return float_to_integer(rt, *number, out);
}

bool filter_round(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "round", args, {"precision", "method"}, 0, bound)) return false;
    std::string method = "common";
    int64_t precision = 0;
    if (bound[0] != nullptr && !to_integer(rt, *bound[0], precision)) return false;
    if (bound[1] != nullptr && !to_text(rt, *bound[1], method)) return false;
    if (method != "common" && method != "ceil" && method != "floor") {
        return rt.fail(ErrorKind::filter_argument, "method must be common, ceil or floor");
    }
    double number = 0;
    if (!to_double(value, number)) return rt.fail_type(fmt::format("type {} doesn't define __round__ method", type_name(value)));
    if (method == "common") {
        if (is_integer(value)) return round_integer(value, precision, out);
        out = round_decimal(number, precision);
        return true;
    }
    const double scale = std::pow(10.0, static_cast<double>(std::clamp(precision, -kDecimalsMax, kDecimalsMax)));
    out = (method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale;
    return true;
}

}  // namespace espalier::text::jinja
