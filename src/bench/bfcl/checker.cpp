#include "bench/bfcl/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/bfcl/python.h"
#include "bench/bfcl/source_values.h"
#include "text/jinja/unicode.h"

namespace espalier::bench {
namespace {

using text::Value;
using text::ValueDict;
using text::ValueList;

Check fail(std::string_view error_type, std::string detail = "") {
    return {false, std::string(error_type), std::move(detail), {}};
}

struct TypeName {
    std::string_view name;
    PyType type;
};
constexpr TypeName kPythonTypes[] = {{"string", PyType::string},   {"integer", PyType::integer}, {"float", PyType::real},
                                     {"boolean", PyType::boolean}, {"array", PyType::list},      {"tuple", PyType::list},
                                     {"dict", PyType::dict},       {"any", PyType::string}};
// "Set" is a type of its own in the reference, which no JSON value has; its conversion raises before the type matters.
constexpr TypeName kJavaTypes[] = {{"byte", PyType::integer},    {"short", PyType::integer}, {"integer", PyType::integer},
                                   {"float", PyType::real},      {"double", PyType::real},   {"long", PyType::integer},
                                   {"boolean", PyType::boolean}, {"char", PyType::string},   {"Array", PyType::list},
                                   {"ArrayList", PyType::list},  {"Set", PyType::none},      {"HashMap", PyType::dict},
                                   {"Hashtable", PyType::dict},  {"Queue", PyType::list},    {"Stack", PyType::list},
                                   {"String", PyType::string},   {"any", PyType::string}};
constexpr TypeName kJsTypes[] = {{"String", PyType::string},  {"integer", PyType::integer}, {"float", PyType::real},
                                 {"Bigint", PyType::integer}, {"Boolean", PyType::boolean}, {"dict", PyType::dict},
                                 {"array", PyType::list},     {"any", PyType::string}};

Result<PyType> find_type(Language language, const Value& name) {
    const auto find = [&](const auto& table) -> Result<PyType> {
        for (const TypeName& entry : table) {
            if (name.as_string() != nullptr && *name.as_string() == entry.name) return entry.type;
        }
        return py_raise("KeyError");
    };
    if (language == Language::java) return find(kJavaTypes);
    return language == Language::javascript ? find(kJsTypes) : find(kPythonTypes);
}

// What a parameter is declared as.
struct Declared {
    std::string name;  // the type's name in the schema
    PyType type = PyType::none;
    std::optional<std::string> item_name;  // of lists whose items are checked
    std::optional<PyType> item_type;
};

struct TypeCheck {
    bool is_valid = true;
    bool is_variable = false;  // the value stands for a variable: only plain equality counts
    std::string error_type;
};

bool is_empty_text(const Value& value) {
    return value.as_string() != nullptr && value.as_string()->empty();
}

// The type of the first accepted value that is not "".
Result<std::optional<PyType>> answer_type(const Value& answers) {
    TRY_ASSIGN(const std::vector<Value> items, py_list(answers));
    for (const Value& item : items) {
        if (!is_empty_text(item)) return std::optional(py_type(item));
    }
    return std::optional<PyType>();
}

Result<TypeCheck> check_type(const Value& value, const Value& answers, PyType expected, const std::optional<PyType>& item_type) {
    TRY_ASSIGN(const std::optional<PyType> accepted, answer_type(answers));
    const bool is_variable = accepted && *accepted != expected;
    TypeCheck result;
    if (py_type(value) == expected) {
        if (!item_type) return TypeCheck{true, is_variable, ""};
        TRY_ASSIGN(const std::vector<Value> candidates, py_list(answers));
        TRY_ASSIGN(const std::vector<Value> items, py_list(value));
        for (const Value& candidate : candidates) {
            bool fits = true;
            for (size_t i = 0; fits && candidate.as_list() != nullptr && i < items.size(); ++i) {
                TRY_ASSIGN(const TypeCheck item, check_type(items[i], candidate, *item_type, std::nullopt));
                fits = item.is_valid;
            }
            if (fits) return TypeCheck{true, is_variable, ""};
        }
        result = {false, false, "type_error:nested"};
    }
    if (accepted && py_type(value) == *accepted) {
        result.is_variable = true;
        return result;
    }
    return TypeCheck{false, result.is_variable, "type_error:simple"};
}

std::string standardise(std::string_view text) {
    std::string kept;
    for (const char c : text) {
        if (std::string_view(" ,./-_*^").find(c) == std::string_view::npos) kept += c;
    }
    kept = text::jinja::to_lower(kept);
    std::ranges::replace(kept, '\'', '"');
    return kept;
}

Value standardised(const Value& value) {
    return value.as_string() != nullptr ? Value(standardise(*value.as_string())) : value;
}

bool is_among(const Value& value, const std::vector<Value>& items) {
    return std::ranges::any_of(items, [&](const Value& item) { return py_equal(value, item); });
}

Result<std::vector<Value>> standardised_items(const Value& list) {
    TRY_ASSIGN(std::vector<Value> items, py_list(list));
    for (Value& item : items) item = standardised(item);
    return items;
}

Result<Check> check_string(const std::string& parameter, const Value& value, const Value& answers) {
    TRY_ASSIGN(const std::vector<Value> items, py_list(answers));
    const std::string text = standardise(*value.as_string());
    const bool fits = std::ranges::any_of(
        items, [&](const Value& item) { return item.as_string() != nullptr && standardise(*item.as_string()) == text; });
    return fits ? Check{} : fail("value_error:string", parameter);
}

Result<Check> check_list(const std::string& parameter, const Value& value, const Value& answers) {
    TRY_ASSIGN(const std::vector<Value> mine, standardised_items(value));
    TRY_ASSIGN(const std::vector<Value> candidates, py_list(answers));
    bool fits = false;
    for (const Value& candidate : candidates) {
        if (candidate.as_dict() != nullptr && !candidate.as_dict()->empty()) return py_raise("KeyError");
        TRY_ASSIGN(const std::vector<Value> items, standardised_items(candidate));
        fits |= items.size() == mine.size() && std::equal(items.begin(), items.end(), mine.begin(), py_equal);
    }
    return fits ? Check{} : fail("value_error:list/tuple", parameter);
}

// One dictionary against one accepted dictionary.
Result<Check> check_members(const ValueDict& members, const Value& value, const Value& answer) {
    Check check;
    for (const auto& [key, member] : members) {
        TRY_ASSIGN(const bool is_known, py_in(Value(key), answer));
        if (!is_known) {
            check = fail("value_error:dict_key", key);
            break;
        }
        TRY_ASSIGN(const Value accepted, py_item(answer, key));
        if (accepted.as_dict() != nullptr && !accepted.as_dict()->empty()) return py_raise("KeyError");
        TRY_ASSIGN(const std::vector<Value> items, standardised_items(accepted));
        if (!is_among(standardised(member), items)) {
            check = fail("value_error:dict_value", key);
            break;
        }
    }
    if (answer.as_dict() == nullptr) return py_raise("AttributeError");
    for (const auto& [key, accepted] : *answer.as_dict()) {
        if (value.find(key) != nullptr) continue;
        TRY_ASSIGN(const bool is_optional, py_in(Value(""), accepted));
        if (!is_optional) return fail("value_error:dict_key", key);
    }
    return check;
}

Result<Check> check_dict(const Value& value, const std::vector<Value>& answers) {
    Check check = fail("dict_checker:unclear");
    for (const Value& answer : answers) {
        if (is_empty_text(answer)) continue;
        if (value.as_dict() == nullptr) return py_raise("AttributeError");
        TRY_ASSIGN(check, check_members(*value.as_dict(), value, answer));
        if (check.is_valid) return check;
    }
    return check;
}

Result<Check> check_list_of_dicts(const Value& value, const Value& answers) {
    Check check = fail("list_dict_checker:unclear");
    TRY_ASSIGN(const std::vector<Value> candidates, py_list(answers));
    const ValueList& mine = *value.as_list();
    for (const Value& candidate : candidates) {
        TRY_ASSIGN(const std::vector<Value> items, py_list(candidate));
        if (items.size() != mine.size()) {
            check = fail("value_error:list_dict_count");
            continue;
        }
        if (candidate.as_dict() != nullptr && !items.empty()) return py_raise("KeyError");
        bool fits = true;
        for (size_t i = 0; fits && i < mine.size(); ++i) {
            TRY_ASSIGN(check, check_dict(mine[i], {items[i]}));
            fits = check.is_valid;
        }
        if (fits) return Check{};
    }
    return check;
}

Result<Declared> read_declared(Language language, const Value& details) {
    Declared declared;
    TRY_ASSIGN(const Value name, py_item(details, "type"));
    TRY_ASSIGN(declared.type, find_type(language, name));
    declared.name = *name.as_string();
    return declared;
}

// Only after the outer type is known to be a list of some sort.
Status read_item_type(Language language, const Value& details, Declared& declared) {
    TRY_ASSIGN(const Value items, py_item(details, "items"));
    TRY_ASSIGN(const Value name, py_item(items, "type"));
    TRY_ASSIGN(declared.item_type, find_type(language, name));
    declared.item_name = *name.as_string();
    return {};
}

bool has_checked_items(Language language, std::string_view type) {
    if (language == Language::python) return type == "array" || type == "tuple";
    return type == "Array" || type == "ArrayList" || type == "array";
}

Result<double> to_float(const Value& integer) {
    if (const int64_t* value = integer.as_int()) return static_cast<double>(*value);
    const double real = py_float(integer.as_big_int()->digits).value_or(0);
    if (std::isinf(real)) return py_raise("OverflowError");
    return real;
}

// What the value is checked as: source text is converted, an integer becomes a float where one is declared.
Result<Value> checked_value(Language language, const Declared& declared, const Value& value) {
    if (language == Language::java) return java_value(*value.as_string(), declared.name, declared.item_name);
    if (language == Language::javascript) return js_value(*value.as_string(), declared.name, declared.item_name);
    if (declared.name != "float" || py_type(value) != PyType::integer) return value;
    TRY_ASSIGN(const double real, to_float(value));
    return Value(real);
}

Result<Check> check_value(const std::string& parameter, const Declared& declared, const Value& value, const Value& answers) {
    TRY_ASSIGN(const TypeCheck type, check_type(value, answers, declared.type, declared.item_type));
    if (!type.is_valid) return fail(type.error_type, parameter);
    if (!type.is_variable) {
        if (declared.type == PyType::dict) {
            TRY_ASSIGN(const std::vector<Value> candidates, py_list(answers));
            return check_dict(value, candidates);
        }
        if (declared.type == PyType::list && declared.item_type == PyType::dict) return check_list_of_dicts(value, answers);
        if (declared.type == PyType::string) return check_string(parameter, value, answers);
        if (declared.type == PyType::list) return check_list(parameter, value, answers);
    }
    TRY_ASSIGN(const bool fits, py_in(value, answers));
    return fits ? Check{} : fail("value_error:others", parameter);
}

Result<Check> check_parameter(Language language, const std::string& parameter, const Value& details, const Value& given,
                              const Value& answers) {
    TRY_ASSIGN(Declared declared, read_declared(language, details));
    if (language != Language::python && py_type(given) != PyType::string) {
        return fail(language == Language::java ? "type_error:java" : "type_error:js", parameter);
    }
    if (has_checked_items(language, declared.name)) TRY(read_item_type(language, details, declared));
    TRY_ASSIGN(const Value value, checked_value(language, declared, given));
    return check_value(parameter, declared, value, answers);
}

std::string declared_name(const std::string& name) {
    std::string replaced = name;
    std::ranges::replace(replaced, '.', '_');
    return replaced;
}

Result<Check> check_call(const Value& function, const Call& call, const Value& answer, Language language) {
    if (answer.as_dict() == nullptr) return py_raise("AttributeError");
    if (answer.as_dict()->empty()) return py_raise("IndexError");
    const Value& accepted = answer.as_dict()->front().second;
    TRY_ASSIGN(const Value name, py_item(function, "name"));
    TRY_ASSIGN(const Value parameters, py_item(function, "parameters"));
    TRY_ASSIGN(const Value properties, py_item(parameters, "properties"));
    TRY_ASSIGN(const Value required, py_item(parameters, "required"));
    if (name.as_string() == nullptr) return py_raise("TypeError");
    if (!py_equal(call.name, Value(declared_name(*name.as_string())))) return fail("simple_function_checker:wrong_func_name");

    TRY_ASSIGN(const std::vector<Value> required_names, py_list(required));
    for (const Value& parameter : required_names) {
        TRY_ASSIGN(const bool is_given, py_in(parameter, call.arguments));
        if (!is_given)
            return fail("simple_function_checker:missing_required", parameter.as_string() ? *parameter.as_string() : "");
    }
    if (call.arguments.as_dict() == nullptr) return py_raise("AttributeError");
    for (const auto& [parameter, given] : *call.arguments.as_dict()) {
        TRY_ASSIGN(const bool is_declared, py_in(Value(parameter), properties));
        TRY_ASSIGN(const bool is_accepted, is_declared ? py_in(Value(parameter), accepted) : Result<bool>(false));
        if (!is_accepted) return fail("simple_function_checker:unexpected_param", parameter);
        TRY_ASSIGN(const Value details, py_item(properties, parameter));
        TRY_ASSIGN(const Value answers, py_item(accepted, parameter));
        TRY_ASSIGN(Check check, check_parameter(language, parameter, details, given, answers));
        if (!check.is_valid) return check;
    }
    if (accepted.as_dict() == nullptr) return py_raise("TypeError");
    for (const auto& [parameter, answers] : *accepted.as_dict()) {
        if (call.arguments.find(parameter) != nullptr) continue;
        TRY_ASSIGN(const bool is_optional, py_in(Value(""), answers));
        if (!is_optional) return fail("simple_function_checker:missing_optional", parameter);
    }
    return Check{};
}

// The description of the function that an answer names; none in the reference is Python's None, which raises when it is read.
Value find_function(const Value& functions, const Value& answer) {
    if (functions.as_list() == nullptr) return functions;
    if (answer.as_dict() == nullptr || answer.as_dict()->empty()) return Value::none();
    for (const Value& function : *functions.as_list()) {
        const Value* name = function.find("name");
        if (name != nullptr && name->as_string() != nullptr && *name->as_string() == answer.as_dict()->front().first)
            return function;
    }
    return Value::none();
}

Result<Check> check_parallel(const CheckInput& input, const std::vector<Value>& answers, const std::vector<Call>& calls) {
    if (calls.size() != answers.size()) return fail("parallel_function_checker_no_order:wrong_count");
    std::vector<bool> is_matched(calls.size(), false);
    for (size_t answer = 0; answer < answers.size(); ++answer) {
        const Value function = find_function(*input.functions, answers[answer]);
        Check failure = fail("parallel_function_checker_no_order:cannot_find_match", fmt::format("answer {}", answer));
        bool is_found = false;
        for (size_t call = 0; call < calls.size() && !is_found; ++call) {
            if (is_matched[call]) continue;
            TRY_ASSIGN(const Check check, check_call(function, calls[call], answers[answer], input.language));
            is_found = check.is_valid;
            is_matched[call] = check.is_valid;
            failure.sub_errors.push_back(check.error_type);
        }
        if (!is_found) return failure;
    }
    return Check{};
}

}  // namespace

Result<Check> check_calls(const CheckInput& input, const std::vector<Call>& calls) {
    TRY_ASSIGN(const std::vector<Value> answers, py_list(*input.answer));
    for (const Call& call : calls) {
        if (py_type(call.name) == PyType::list || py_type(call.name) == PyType::dict) return py_raise("TypeError");
    }
    if (input.category.find("parallel") != std::string_view::npos) return check_parallel(input, answers, calls);
    if (input.category.find("multiple") != std::string_view::npos) {
        if (calls.size() != answers.size()) return fail("multiple_function_checker:wrong_count");
        if (answers.empty()) return py_raise("IndexError");
        return check_call(find_function(*input.functions, answers.front()), calls.front(), answers.front(), input.language);
    }
    if (calls.size() != 1) return fail("simple_function_checker:wrong_count");
    TRY_ASSIGN(const std::vector<Value> functions, py_list(*input.functions));
    if (functions.empty() || answers.empty()) return py_raise("IndexError");
    return check_call(functions.front(), calls.front(), answers.front(), input.language);
}

}  // namespace espalier::bench
