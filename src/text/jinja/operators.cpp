#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/big_integer.h"
#include "text/jinja/escape.h"
#include "text/jinja/formatting.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

constexpr const char* kBinaryNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
constexpr const char* kCompareNames[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

// long double holds every int64 on the supported machines (x87, and 128 bits on ARM), so int-float comparison is exact.
int compare_numbers(const Val& a, const Val& b, bool& is_ordered) {
    is_ordered = true;
    const auto wide = [](const Val& value) -> long double {
        int64_t integer = 0;
        double number = 0;
        if (to_int64(value, integer)) return static_cast<long double>(integer);
        to_double(value, number);
        return number;
    };
    if (is_integer(a) && is_integer(b) && (a.as_big_int() != nullptr || b.as_big_int() != nullptr)) return compare_integers(a, b);
    const long double x = wide(a);
    const long double y = wide(b);
    is_ordered = !std::isnan(x) && !std::isnan(y);
    if (x == y) return 0;
    return x < y ? -1 : 1;
}

bool equal_lists(const ListObject& a, const ListObject& b) {
    if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
    for (size_t i = 0; i < a.items.size(); ++i) {
        if (!equals(a.items[i], b.items[i])) return false;
    }
    return true;
}

bool equal_dicts(const DictObject& a, const DictObject& b) {
    if (a.members.size() != b.members.size()) return false;
    for (const auto& [key, value] : a.members) {
        const Val* other = b.find(key);
        if (other == nullptr || !equals(value, *other)) return false;
    }
    return true;
}

bool fail_operands(Runtime& rt, BinaryOp op, const Val& a, const Val& b) {
    return rt.fail_type(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", kBinaryNames[static_cast<int>(op)],
                                    type_name(a), type_name(b)));
}

bool add_text(Runtime& rt, const Val& a, const Val& b, Val& out) {
    const bool is_markup = a.is_markup() || b.is_markup();
    std::string text;
    if (!rt.charge_bytes(a.as_string()->size() + b.as_string()->size())) return false;
    text.reserve(a.as_string()->size() + b.as_string()->size());
    for (const Val* part : {&a, &b}) {
        if (is_markup && !part->is_markup()) append_escaped(text, *part->as_string());
        else text += *part->as_string();
    }
    out = Val(std::move(text)).with_markup(is_markup);
    return true;
}

bool add_lists(Runtime& rt, const ListObject& a, const ListObject& b, Val& out) {
    ValList items = a.items;
    items.insert(items.end(), b.items.begin(), b.items.end());
    return rt.make_list(std::move(items), a.kind, out);
}

bool is_plain_sequence(const ListObject* list) {
    return list != nullptr && (list->kind == ListObject::Kind::list || list->kind == ListObject::Kind::tuple);
}

// Sequence * integer; false without an error when the operands are something else.
bool repeat(Runtime& rt, const Val& sequence, const Val& times, Val& out, bool& is_done) {
    int64_t n = 0;
    const ListObject* list = sequence.as_list();
    is_done = (sequence.is_string() || is_plain_sequence(list)) && to_int64(times, n);
    if (!is_done) return true;
    const auto count = static_cast<size_t>(std::max<int64_t>(n, 0));
    const size_t unit = sequence.is_string() ? sequence.as_string()->size() : list->items.size() * sizeof(Val);
    const size_t limit = rt.limits().text_bytes + 1;
    const size_t bytes = unit != 0 && count > limit / unit ? limit : unit * count;
    if (!rt.charge_bytes(bytes)) return false;
    if (sequence.is_string()) {
        std::string text;
        text.reserve(bytes);
        for (size_t i = 0; unit != 0 && i < count; ++i) text += *sequence.as_string();
        out = Val(std::move(text)).with_markup(sequence.is_markup());
        return true;
    }
    ValList items;
    for (size_t i = 0; unit != 0 && i < count; ++i) items.insert(items.end(), list->items.begin(), list->items.end());
    return rt.make_list(std::move(items), list->kind, out);
}

double floor_mod(double a, double b) {
    const double rest = std::fmod(a, b);
    if (rest == 0) return std::copysign(0.0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_div(double a, double b) {
    const double quotient = (a - floor_mod(a, b)) / b;
    if (quotient == 0) return std::copysign(0.0, a / b);
    const double floored = std::floor(quotient);
    return quotient - floored > 0.5 ? floored + 1 : floored;
}

bool float_arithmetic(Runtime& rt, BinaryOp op, double a, double b, Val& out) {
    switch (op) {
        case BinaryOp::add: out = a + b; return true;
        case BinaryOp::sub: out = a - b; return true;
        case BinaryOp::mul: out = a * b; return true;
        case BinaryOp::div:
            if (b == 0) return rt.fail(ErrorKind::zero_division, "float division by zero");
            out = a / b;
            return true;
        case BinaryOp::floor_div:
            if (b == 0) return rt.fail(ErrorKind::zero_division, "float floor division by zero");
            out = floor_div(a, b);
            return true;
        case BinaryOp::mod:
            if (b == 0) return rt.fail(ErrorKind::zero_division, "float modulo by zero");
            out = floor_mod(a, b);
            return true;
        case BinaryOp::pow: break;
    }
    if (a == 0 && b < 0) return rt.fail(ErrorKind::zero_division, "0.0 cannot be raised to a negative power");
    const double power = std::pow(a, b);
    if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
        return rt.fail(ErrorKind::unsupported, "a power that is a complex number");
    }
    if (std::isinf(power) && !std::isinf(a) && !std::isinf(b))
        return rt.fail(ErrorKind::overflow, "(34, 'Numerical result out of range')");
    out = power;
    return true;
}

bool integer_power(Runtime& rt, const Val& base, const Val& exponent, Val& out) {
    int64_t n = 0;
    if (!to_int64(exponent, n)) return rt.fail(ErrorKind::limit, "exponent too large");
    if (n < 0) {
        double a = 0;
        to_double(base, a);
        return float_arithmetic(rt, BinaryOp::pow, a, static_cast<double>(n), out);
    }
    Val result = int64_t{1};
    Val square = base;
    for (; n > 0; n >>= 1) {
        if ((n & 1) != 0) result = multiply_integers(result, square);
        if (n > 1) square = multiply_integers(square, square);
        if (integer_digits(result).size() > kIntegerDigitsMax || integer_digits(square).size() > 2 * kIntegerDigitsMax) {
            return rt.fail(ErrorKind::value_error, fmt::format("integer of more than {} digits", kIntegerDigitsMax));
        }
    }
    out = result;
    return true;
}

bool integer_division(Runtime& rt, BinaryOp op, const Val& a, const Val& b, Val& out) {
    int64_t x = 0;
    int64_t y = 0;
    const bool fits = to_int64(a, x) && to_int64(b, y);
    if (fits && y == 0) {
        return rt.fail(ErrorKind::zero_division, op == BinaryOp::div   ? "division by zero"
                                                 : op == BinaryOp::mod ? "integer modulo by zero"
                                                                       : "integer division or modulo by zero");
    }
    if (op == BinaryOp::div) {
        double wide_x = 0;
        double wide_y = 0;
        to_double(a, wide_x);
        to_double(b, wide_y);
        out = fits ? static_cast<double>(static_cast<long double>(x) / static_cast<long double>(y)) : wide_x / wide_y;
        return true;
    }
    if (!fits || y == -1) {  // INT64_MIN // -1 is the one quotient of two int64 that does not fit
        if (equals(b, Val(int64_t{0}))) return rt.fail(ErrorKind::zero_division, "integer division or modulo by zero");
        const size_t digits = integer_digits(a).size();
        if (!rt.charge_steps(digits * integer_digits(b).size())) return false;
        const Division division = divide_integers(a, b);
        out = op == BinaryOp::mod ? division.rest : division.quotient;
        return true;
    }
    const int64_t rest = x % y;
    const bool is_floored = rest != 0 && (rest < 0) != (y < 0);
    if (op == BinaryOp::mod) out = is_floored ? rest + y : rest;
    else out = x / y - (is_floored ? 1 : 0);
    return true;
}

bool integer_arithmetic(Runtime& rt, BinaryOp op, const Val& a, const Val& b, Val& out) {
    int64_t x = 0;
    int64_t y = 0;
    const bool fits = to_int64(a, x) && to_int64(b, y);
    int64_t result = 0;
    switch (op) {
        case BinaryOp::add: out = fits && !__builtin_add_overflow(x, y, &result) ? Val(result) : add_integers(a, b); break;
        case BinaryOp::sub:
            out = fits && !__builtin_sub_overflow(x, y, &result) ? Val(result) : add_integers(a, negate_integer(b));
            break;
        case BinaryOp::mul: out = fits && !__builtin_mul_overflow(x, y, &result) ? Val(result) : multiply_integers(a, b); break;
        case BinaryOp::pow: return integer_power(rt, a, b, out);
        default: return integer_division(rt, op, a, b, out);
    }
    const BigInt* big = out.as_big_int();
    if (big == nullptr) return true;
    if (big->digits.size() > kIntegerDigitsMax) {
        return rt.fail(ErrorKind::value_error, fmt::format("integer of more than {} digits", kIntegerDigitsMax));
    }
    return rt.charge_steps(big->digits.size()) && rt.charge_bytes(big->digits.size());
}

bool add_values(Runtime& rt, const Val& a, const Val& b, Val& out) {
    if (a.is_string()) {
        if (b.is_string()) return add_text(rt, a, b, out);
        return rt.fail_type(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
    }
    const ListObject* x = a.as_list();
    const ListObject* y = b.as_list();
    if (is_plain_sequence(x)) {
        if (is_plain_sequence(y) && x->kind == y->kind) return add_lists(rt, *x, *y, out);
        return rt.fail_type(fmt::format("can only concatenate {} (not \"{}\") to {}", type_name(a), type_name(b), type_name(a)));
    }
    return fail_operands(rt, BinaryOp::add, a, b);
}

bool less_lists(Runtime& rt, const ListObject& a, const ListObject& b, bool& out, const char* op) {
    for (size_t i = 0; i < a.items.size() && i < b.items.size(); ++i) {
        if (!equals(a.items[i], b.items[i])) return less(rt, a.items[i], b.items[i], out, op);
    }
    out = a.items.size() < b.items.size();
    return true;
}

bool contains(Runtime& rt, const Val& needle, const Val& haystack, bool& out) {
    out = false;
    if (const std::string* text = haystack.as_string()) {
        if (needle.is_undefined()) return rt.fail_type("'in <string>' requires string as left operand, not Undefined");
        if (!needle.is_string()) {
            return rt.fail_type(fmt::format("'in <string>' requires string as left operand, not {}", type_name(needle)));
        }
        if (!rt.charge_steps(text->size() / 256)) return false;
        out = text->find(*needle.as_string()) != std::string::npos;
        return true;
    }
    if (const DictObject* dict = haystack.as_dict()) {
        if (!is_hashable(needle)) return rt.fail_type(fmt::format("unhashable type: '{}'", type_name(needle)));
        out = dict->find(needle) != nullptr;
        return true;
    }
    if (haystack.is_undefined()) return true;
    if (haystack.as_list() == nullptr)
        return rt.fail_type(fmt::format("argument of type '{}' is not iterable", type_name(haystack)));
    ValList items;
    if (!iterate(rt, haystack, items)) return false;
    for (const Val& item : items) {
        if (!rt.charge_comparison(item, needle)) return false;
        out = out || equals(item, needle);
    }
    return true;
}

}  // namespace

std::string type_name(const Val& value) {
    switch (value.type()) {
        case Val::Type::undefined: return "Undefined";
        case Val::Type::none: return "NoneType";
        case Val::Type::boolean: return "bool";
        case Val::Type::integer:
        case Val::Type::big_integer: return "int";
        case Val::Type::number: return "float";
        case Val::Type::string: return value.is_markup() ? "Markup" : "str";
        case Val::Type::list: return value.as_list()->type_name;
        case Val::Type::dict: return "dict";
        case Val::Type::object: break;
    }
    switch (value.as_object()->kind) {
        case Object::Kind::name_space: return "Namespace";
        case Object::Kind::macro: return "Macro";
        case Object::Kind::function: return "function";
        case Object::Kind::method: return "builtin_function_or_method";
        case Object::Kind::loop: return "LoopContext";
        case Object::Kind::cycler: return "Cycler";
        case Object::Kind::joiner: return "Joiner";
    }
    return "object";
}

bool is_true(const Val& value) {
    switch (value.type()) {
        case Val::Type::undefined:
        case Val::Type::none: return false;
        case Val::Type::boolean: return *value.as_bool();
        case Val::Type::integer: return *value.as_int() != 0;
        case Val::Type::number: return *value.as_float() != 0;
        case Val::Type::string: return !value.as_string()->empty();
        case Val::Type::list: return !value.as_list()->has_length() || !value.as_list()->items.empty();
        case Val::Type::dict: return !value.as_dict()->members.empty();
        default: return true;
    }
}

bool is_number(const Val& value) {
    return is_integer(value) || value.as_float() != nullptr;
}

bool to_int64(const Val& value, int64_t& out) {
    if (const int64_t* integer = value.as_int()) out = *integer;
    else if (const bool* boolean = value.as_bool()) out = *boolean ? 1 : 0;
    else return false;
    return true;
}

bool to_double(const Val& value, double& out) {
    int64_t integer = 0;
    if (const double* number = value.as_float()) out = *number;
    else if (to_int64(value, integer)) out = static_cast<double>(integer);
    else if (const BigInt* big = value.as_big_int()) out = parse_float(big->digits);
    else return false;
    return true;
}

bool equals(const Val& a, const Val& b) {
    if (is_number(a) && is_number(b)) {
        bool is_ordered = false;
        return compare_numbers(a, b, is_ordered) == 0 && is_ordered;
    }
    if (a.type() != b.type()) return false;
    switch (a.type()) {
        case Val::Type::undefined:
        case Val::Type::none: return true;
        case Val::Type::string: return *a.as_string() == *b.as_string();
        case Val::Type::list: return a.as_list() == b.as_list() || equal_lists(*a.as_list(), *b.as_list());
        case Val::Type::dict: return a.as_dict() == b.as_dict() || equal_dicts(*a.as_dict(), *b.as_dict());
        default: return a.as_object() == b.as_object();
    }
}

bool less(Runtime& rt, const Val& a, const Val& b, bool& out, const char* op) {
    if (a.is_undefined()) return rt.fail_undefined(a);
    if (b.is_undefined()) return rt.fail_undefined(b);
    if (is_number(a) && is_number(b)) {
        bool is_ordered = false;
        out = compare_numbers(a, b, is_ordered) < 0 && is_ordered;
        return true;
    }
    if (a.is_string() && b.is_string()) {
        out = *a.as_string() < *b.as_string();  // UTF-8 sorts as code points do
        return true;
    }
    if (is_plain_sequence(a.as_list()) && is_plain_sequence(b.as_list()) && a.as_list()->kind == b.as_list()->kind) {
        return less_lists(rt, *a.as_list(), *b.as_list(), out, op);
    }
    return rt.fail_type(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
}

bool compare(Runtime& rt, CompareOp op, const Val& a, const Val& b, bool& out) {
    const char* name = kCompareNames[static_cast<int>(op)];
    bool is_less = false;
    if (!rt.charge_comparison(a, b)) return false;
    switch (op) {
        case CompareOp::eq: out = equals(a, b); return true;
        case CompareOp::ne: out = !equals(a, b); return true;
        case CompareOp::in: return contains(rt, a, b, out);
        case CompareOp::not_in:
            if (!contains(rt, a, b, out)) return false;
            out = !out;
            return true;
        case CompareOp::lt: return less(rt, a, b, out, name);
        case CompareOp::ge:
        case CompareOp::le: {
            if (!less(rt, a, b, is_less, name)) return false;
            const bool is_equal = equals(a, b);
            const bool is_unordered =
                !is_equal && !is_less && is_number(a) && a.as_float() != nullptr && std::isnan(*a.as_float());
            out = op == CompareOp::le ? is_less || is_equal : !is_less && !is_unordered;
            if (const double* number = b.as_float(); number != nullptr && std::isnan(*number)) out = false;
            return true;
        }
        case CompareOp::gt: break;
    }
    if (!less(rt, a, b, is_less, name)) return false;
    return less(rt, b, a, out, name);
}

bool arithmetic(Runtime& rt, BinaryOp op, const Val& a, const Val& b, Val& out) {
    if (a.is_undefined()) return rt.fail_undefined(a);
    if (op == BinaryOp::mod && a.is_string()) return format_percent(rt, a, b, out);
    if (b.is_undefined() && !a.is_string()) return rt.fail_undefined(b);
    if (is_integer(a) && is_integer(b)) return integer_arithmetic(rt, op, a, b, out);
    double x = 0;
    double y = 0;
    if (to_double(a, x) && to_double(b, y)) return float_arithmetic(rt, op, x, y, out);
    if (b.is_undefined()) return rt.fail_undefined(b);
    if (op == BinaryOp::add) return add_values(rt, a, b, out);
    if (op == BinaryOp::mul) {
        bool is_done = false;
        if (!repeat(rt, a, b, out, is_done)) return false;
        if (!is_done && !repeat(rt, b, a, out, is_done)) return false;
        if (is_done) return true;
        const bool is_left = a.is_string() || is_plain_sequence(a.as_list());
        if (is_left || b.is_string() || is_plain_sequence(b.as_list())) {
            return rt.fail_type(fmt::format("can't multiply sequence by non-int of type '{}'", type_name(is_left ? b : a)));
        }
    }
    return fail_operands(rt, op, a, b);
}

bool negate(Runtime& rt, const Val& value, Val& out) {
    if (value.is_undefined()) return rt.fail_undefined(value);
    if (is_integer(value)) {
        out = negate_integer(value);
        return true;
    }
    if (const double* number = value.as_float()) {
        out = -*number;
        return true;
    }
    return rt.fail_type(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

}  // namespace espalier::text::jinja
