// The tests: `x is name(args)`.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/big_integer.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

bool no_args(Runtime& rt, const char* name, const CallArgs& args) {
    return (args.positional.empty() && args.named.empty()) || rt.fail_type(fmt::format("the test '{}' takes no argument", name));
}

bool one_arg(Runtime& rt, const char* name, const CallArgs& args, const Val*& out) {
    if (args.positional.size() != 1 || !args.named.empty()) {
        return rt.fail_type(
            fmt::format("the test '{}' takes one argument, {} were given", name, args.positional.size() + args.named.size()));
    }
    out = &args.positional[0];
    return true;
}

template <CompareOp kOp>
bool compares(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    const Val* other = nullptr;
    return one_arg(rt, "comparison", args, other) && compare(rt, kOp, value, *other, out);
}

bool is_sequence(const Val& value) {
    const ListObject* list = value.as_list();
    return value.is_string() || value.as_dict() != nullptr || value.is_undefined() || (list != nullptr && list->has_elements());
}

bool is_callable(const Val& value) {
    const Object* object = value.as_object();
    return value.is_undefined() ||
           (object != nullptr && object->kind != Object::Kind::name_space && object->kind != Object::Kind::cycler);
}

// The tests without arguments that look at the value only.
template <bool (*kPredicate)(const Val&)>
bool plain(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    if (!no_args(rt, "type", args)) return false;
    out = kPredicate(value);
    return true;
}

bool check_defined(const Val& value) {
    return !value.is_undefined();
}
bool check_undefined(const Val& value) {
    return value.is_undefined();
}
bool check_none(const Val& value) {
    return value.is_none();
}
bool check_boolean(const Val& value) {
    return value.as_bool() != nullptr;
}
bool check_true(const Val& value) {
    return value.as_bool() != nullptr && *value.as_bool();
}
bool check_false(const Val& value) {
    return value.as_bool() != nullptr && !*value.as_bool();
}
bool check_integer(const Val& value) {
    return value.as_int() != nullptr || value.as_big_int() != nullptr;
}
bool check_float(const Val& value) {
    return value.as_float() != nullptr;
}
bool check_string(const Val& value) {
    return value.is_string();
}
bool check_mapping(const Val& value) {
    return value.as_dict() != nullptr;
}
bool check_iterable(const Val& value) {
    return is_sequence(value) || value.as_list() != nullptr;
}
bool check_escaped(const Val& value) {
    return value.is_markup();
}

// str.islower and str.isupper of the value's text.
bool has_case(Runtime& rt, const Val& value, bool wants_upper, bool& out) {
    std::string text;
    if (!to_text(rt, value, text)) return false;
    bool is_cased = false;
    out = true;
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        i += c.bytes;
        const bool has_wanted = wants_upper ? is_upper(c.value) : is_lower(c.value);
        const bool has_other = is_title(c.value) || (wants_upper ? is_lower(c.value) : is_upper(c.value));
        is_cased = is_cased || has_wanted;
        if (has_other) out = false;
    }
    out = out && is_cased;
    return true;
}

bool check_lower(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    return no_args(rt, "lower", args) && has_case(rt, value, false, out);
}

bool check_upper(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    return no_args(rt, "upper", args) && has_case(rt, value, true, out);
}

bool modulo_is(Runtime& rt, const Val& value, const Val& divisor, int64_t wanted, bool& out) {
    Val rest;
    if (!arithmetic(rt, BinaryOp::mod, value, divisor, rest)) return false;
    out = equals(rest, Val(wanted));
    return true;
}

bool check_odd(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    return no_args(rt, "odd", args) && modulo_is(rt, value, Val(int64_t{2}), 1, out);
}

bool check_even(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    return no_args(rt, "even", args) && modulo_is(rt, value, Val(int64_t{2}), 0, out);
}

bool check_divisible(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    const Val* divisor = nullptr;
    return one_arg(rt, "divisibleby", args, divisor) && modulo_is(rt, value, *divisor, 0, out);
}

bool check_same(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    const Val* other = nullptr;
    if (!one_arg(rt, "sameas", args, other)) return false;
    out = value.is_same(*other);
    return true;
}

bool check_in(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    const Val* container = nullptr;
    return one_arg(rt, "in", args, container) && compare(rt, CompareOp::in, value, *container, out);
}

bool check_filter(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    out = value.is_string() && find_filter(*value.as_string()) != nullptr;
    return no_args(rt, "filter", args);
}

bool check_test(Runtime& rt, const Val& value, const CallArgs& args, bool& out) {
    out = value.is_string() && find_test(*value.as_string()) != nullptr;
    return no_args(rt, "test", args);
}

constexpr std::pair<std::string_view, TestFunction> kTests[] = {
    {"boolean", plain<check_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<check_defined>},
    {"divisibleby", check_divisible},
    {"eq", compares<CompareOp::eq>},
    {"equalto", compares<CompareOp::eq>},
    {"escaped", plain<check_escaped>},
    {"even", check_even},
    {"false", plain<check_false>},
    {"filter", check_filter},
    {"float", plain<check_float>},
    {"ge", compares<CompareOp::ge>},
    {"greaterthan", compares<CompareOp::gt>},
    {"gt", compares<CompareOp::gt>},
    {"in", check_in},
    {"integer", plain<check_integer>},
    {"iterable", plain<check_iterable>},
    {"le", compares<CompareOp::le>},
    {"lessthan", compares<CompareOp::lt>},
    {"lower", check_lower},
    {"lt", compares<CompareOp::lt>},
    {"mapping", plain<check_mapping>},
    {"ne", compares<CompareOp::ne>},
    {"none", plain<check_none>},
    {"number", plain<is_number>},
    {"odd", check_odd},
    {"sameas", check_same},
    {"sequence", plain<is_sequence>},
    {"string", plain<check_string>},
    {"test", check_test},
    {"true", plain<check_true>},
    {"undefined", plain<check_undefined>},
    {"upper", check_upper},
    // The operators' own spellings, for select and reject.
    {"==", compares<CompareOp::eq>},
    {"!=", compares<CompareOp::ne>},
    {"<", compares<CompareOp::lt>},
    {"<=", compares<CompareOp::le>},
    {">", compares<CompareOp::gt>},
    {">=", compares<CompareOp::ge>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
    for (const auto& [known, function] : kTests) {
        if (known == name) return function;
    }
    return nullptr;
}

bool Runtime::apply_test(std::string_view name, const Val& value, const CallArgs& args, bool& out) {
    const TestFunction function = find_test(name);
    if (function == nullptr) return fail(ErrorKind::runtime, fmt::format("No test named '{}'.", name));
    return charge_steps(1) && function(*this, value, args, out);
}

}  // namespace espalier::text::jinja
