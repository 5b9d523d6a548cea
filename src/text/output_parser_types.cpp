#include "text/output_parser_types.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"
#include "text/json_escape.h"
#include "text/output_parser_json.h"
#include "text/output_parser_symbols.h"

namespace espalier::text {
namespace {

constexpr int kSchemaNodesMax = 1000;  // visited per parameter
constexpr int kNumberDigitsMax = 400;  // an integer written with an exponent is spelled out up to here

struct TypeName {
    std::string_view name;
    uint8_t bits;
};

// JSON Schema's names, and the Python names that function-calling data sets use for them.
constexpr std::array kTypeNames = {
    TypeName{"string", TypeSet::string},   TypeName{"integer", TypeSet::integer}, TypeName{"number", TypeSet::number},
    TypeName{"boolean", TypeSet::boolean}, TypeName{"null", TypeSet::null},       TypeName{"array", TypeSet::array},
    TypeName{"object", TypeSet::object},   TypeName{"str", TypeSet::string},      TypeName{"int", TypeSet::integer},
    TypeName{"float", TypeSet::number},    TypeName{"bool", TypeSet::boolean},    TypeName{"list", TypeSet::array},
    TypeName{"tuple", TypeSet::array},     TypeName{"dict", TypeSet::object},
};

// Visits a schema; a budget instead of a depth limit, because unions multiply.
class TypeResolver {
public:
    explicit TypeResolver(const Value& root) : root_(&root) {}

    uint8_t types_of(const Value& schema, int depth = 0) {
        if (--n_left_ < 0 || depth > 32) return 0;
        if (const Value* reference = schema.find("$ref")) {
            const Value* target = resolve(*reference);
            return target == nullptr ? 0 : types_of(*target, depth + 1);
        }
        uint8_t bits = 0;
        if (const Value* type = schema.find("type")) {
            bits = named(*type);
        } else if (const Value* any_of = schema.find("anyOf")) {
            bits = union_of(*any_of, depth);
        } else if (const Value* one_of = schema.find("oneOf")) {
            bits = union_of(*one_of, depth);
        } else if (const Value* all_of = schema.find("allOf")) {
            bits = intersection_of(*all_of, depth);
        } else if (const Value* values = schema.find("enum")) {
            if (const ValueList* list = values->as_list()) {
                for (const Value& value : *list) bits |= type_of(value);
            }
        } else if (const Value* value = schema.find("const")) {
            bits = type_of(*value);
        } else if (schema.find("properties") != nullptr) {
            bits = TypeSet::object;
        } else if (schema.find("items") != nullptr) {
            bits = TypeSet::array;
        }
        const Value* nullable = schema.find("nullable");
        const bool is_nullable = nullable != nullptr && nullable->as_bool() != nullptr && *nullable->as_bool();
        return bits != 0 && is_nullable ? bits | TypeSet::null : bits;
    }

private:
    static uint8_t named(const Value& type) {
        if (const std::string* name = type.as_string()) {
            const auto* found =
                std::find_if(kTypeNames.begin(), kTypeNames.end(), [&](const TypeName& t) { return t.name == *name; });
            return found == kTypeNames.end() ? 0 : found->bits;
        }
        uint8_t bits = 0;
        if (const ValueList* list = type.as_list()) {
            for (const Value& item : *list) {
                const uint8_t one = item.as_list() != nullptr ? 0 : named(item);
                if (one == 0) return 0;
                bits |= one;
            }
        }
        return bits;
    }

    // One branch that allows anything makes the union untyped.
    uint8_t union_of(const Value& branches, int depth) {
        uint8_t bits = 0;
        if (const ValueList* list = branches.as_list()) {
            for (const Value& branch : *list) {
                const uint8_t one = types_of(branch, depth + 1);
                if (one == 0) return 0;
                bits |= one;
            }
        }
        return bits;
    }

    uint8_t intersection_of(const Value& branches, int depth) {
        uint8_t bits = 0;
        if (const ValueList* list = branches.as_list()) {
            for (const Value& branch : *list) {
                const uint8_t one = types_of(branch, depth + 1);
                if (one != 0) bits = bits == 0 ? one : bits & one;
            }
        }
        return bits;
    }

    static uint8_t type_of(const Value& value) {
        if (value.as_string() != nullptr) return TypeSet::string;
        if (value.as_bool() != nullptr) return TypeSet::boolean;
        if (value.as_int() != nullptr || value.as_big_int() != nullptr) return TypeSet::integer;
        if (value.as_float() != nullptr) return TypeSet::number;
        if (value.as_list() != nullptr) return TypeSet::array;
        if (value.as_dict() != nullptr) return TypeSet::object;
        return value.is_none() ? TypeSet::null : 0;
    }

    // JSON pointer in the root schema (RFC 6901, with ~0 and ~1; members only).
    const Value* resolve(const Value& reference) const {
        const std::string* text = reference.as_string();
        if (text == nullptr || text->empty() || (*text)[0] != '#') return nullptr;
        const Value* at = root_;
        std::string_view rest = std::string_view(*text).substr(1);
        while (!rest.empty() && at != nullptr) {
            if (rest[0] != '/') return nullptr;
            rest.remove_prefix(1);
            const std::string_view part = rest.substr(0, rest.find('/'));
            rest.remove_prefix(part.size());
            std::string key;
            for (size_t i = 0; i < part.size(); ++i) {
                const bool is_escape = part[i] == '~' && i + 1 < part.size();
                key += is_escape ? (part[++i] == '1' ? '/' : '~') : part[i];
            }
            at = at->find(key);
        }
        return at;
    }

    const Value* root_;
    int n_left_ = kSchemaNodesMax;
};

bool is_digits(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

// A decimal number, leniently: sign, leading zeros, a missing part on one side of the point.
struct Decimal {
    bool is_negative = false;
    std::string_view whole;     // digits, may be empty
    std::string_view fraction;  // digits, may be empty
    std::string_view exponent;  // signed digits, may be empty
};

bool split_decimal(std::string_view text, Decimal& out) {
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
        out.is_negative = text[0] == '-';
        text.remove_prefix(1);
    }
    if (const size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
        out.exponent = text.substr(e + 1);
        text = text.substr(0, e);
        std::string_view digits = out.exponent;
        if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
        if (!is_digits(digits)) return false;
    }
    const size_t point = text.find('.');
    out.whole = text.substr(0, point);
    out.fraction = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
    if (out.whole.empty() && out.fraction.empty()) return false;
    return (out.whole.empty() || is_digits(out.whole)) && (out.fraction.empty() || is_digits(out.fraction));
}

std::string strip_zeros(std::string_view digits) {
    const size_t first = digits.find_first_not_of('0');
    return first == std::string_view::npos ? "0" : std::string(digits.substr(first));
}

// The digits of an integral number, or empty.
std::string integer_json(std::string_view text) {
    Decimal decimal;
    if (!split_decimal(text, decimal)) return {};
    std::string digits(decimal.whole);
    std::string_view fraction = decimal.fraction;
    int exponent = 0;
    if (!decimal.exponent.empty()) {
        std::string_view spelled = decimal.exponent;
        if (spelled[0] == '+') spelled.remove_prefix(1);
        const auto [end, error] = std::from_chars(spelled.data(), spelled.data() + spelled.size(), exponent);
        if (error != std::errc() || exponent > kNumberDigitsMax || exponent < -kNumberDigitsMax) return {};
        static_cast<void>(end);
    }
    for (; exponent > 0; --exponent) {
        digits += fraction.empty() ? '0' : fraction[0];
        if (!fraction.empty()) fraction.remove_prefix(1);
    }
    for (; exponent < 0; ++exponent) {
        if (!digits.empty() && digits.back() != '0') return {};
        if (!digits.empty()) digits.pop_back();
    }
    if (fraction.find_first_not_of('0') != std::string_view::npos) return {};
    digits = strip_zeros(digits);
    return decimal.is_negative && digits != "0" ? "-" + digits : digits;
}

// The JSON spelling of a number, or empty.
std::string number_json(std::string_view text) {
    if (is_json_number(text)) return std::string(text);
    Decimal decimal;
    if (!split_decimal(text, decimal)) return {};
    std::string out = decimal.is_negative ? "-" : "";
    out += strip_zeros(decimal.whole);
    if (!decimal.fraction.empty()) out += "." + std::string(decimal.fraction);
    if (!decimal.exponent.empty()) out += "e" + std::string(decimal.exponent);
    return out;
}

// How a program would print a number: nothing to spare at either end, no exponent ("1.10" is a version, "1e5" may be a name).
bool is_canonical_number(std::string_view text) {
    if (!is_json_number(text) || text.find_first_of("eE") != std::string_view::npos || text == "-0") return false;
    const size_t point = text.find('.');
    if (point == std::string_view::npos) return true;
    return text.back() != '0' || point + 2 == text.size();
}

struct ReadStructure {
    std::string json;
    bool is_python = false;
};

// A whole array or object of an allowed kind, in JSON or Python spelling; empty json if it is none.
ReadStructure read_structure(std::string_view text, TypeSet types, bool allow_python) {
    const char first = text.empty() ? 0 : text[0];
    const bool is_array = first == '[' || (first == '(' && allow_python);
    if (!(is_array && types.has(TypeSet::array)) && !(first == '{' && types.has(TypeSet::object))) return {};
    JsonTranscoder transcoder;
    ReadStructure out;
    size_t pos = 0;
    while (pos < text.size() && transcoder.feed(text[pos], out.json)) {
        ++pos;
        if (transcoder.is_broken()) return {};
    }
    if (!transcoder.is_done() || pos != text.size() || transcoder.is_broken()) return {};
    if (transcoder.is_python() && !allow_python) return {};
    out.is_python = transcoder.is_python();
    return out;
}

TypedValue string_value(std::string_view text, const char* repair = nullptr) {
    TypedValue out{"\"", repair};
    append_json_escaped(out.json, text);
    out.json += '"';
    return out;
}

// Types that include string: only the spelling that a program would print is taken for another type.
TypedValue type_union_with_string(std::string_view text, TypeSet types) {
    const bool is_integer = is_canonical_number(text) && text.find('.') == std::string_view::npos;
    const bool is_scalar = (types.has(TypeSet::boolean) && (text == "true" || text == "false")) ||
                           (types.has(TypeSet::null) && text == "null") ||
                           ((types.has(TypeSet::integer) || types.has(TypeSet::number)) && is_integer) ||
                           (types.has(TypeSet::number) && is_canonical_number(text));
    if (is_scalar) return {std::string(text), nullptr};
    if (ReadStructure structure = read_structure(text, types, false); !structure.json.empty())
        return {std::move(structure.json), nullptr};
    return string_value(text);
}

TypedValue type_non_string(std::string_view raw, TypeSet types, bool may_decode) {
    const std::string_view text = trim_space(raw);
    if (types.has(TypeSet::integer)) {
        if (std::string json = integer_json(text); !json.empty()) {
            const bool is_plain = json == text;
            return {std::move(json), is_plain ? nullptr : "number_spelling"};
        }
    }
    if (types.has(TypeSet::number)) {
        if (std::string json = number_json(text); !json.empty()) {
            const bool is_plain = json == text;
            return {std::move(json), is_plain ? nullptr : "number_spelling"};
        }
    }
    const std::string word = text.size() <= 5 ? lower(text) : std::string();
    if (types.has(TypeSet::boolean) && (word == "true" || word == "false")) {
        return {word, word == text ? nullptr : "python_literal"};
    }
    if (types.has(TypeSet::null) && (word == "null" || word == "none"))
        return {"null", text == "null" ? nullptr : "python_literal"};
    if (ReadStructure structure = read_structure(text, types, true); !structure.json.empty()) {
        return {std::move(structure.json), structure.is_python ? "python_literal" : nullptr};
    }
    // The model serialised twice: a JSON string that holds the value.
    if (may_decode && text.size() >= 2 && text.front() == '"') {
        if (const auto parsed = parse_json(text, "argument"); parsed && parsed->is_string()) {
            TypedValue inner = type_non_string(parsed->get_ref<const std::string&>(), types, false);
            if (inner.json.front() != '"') return {std::move(inner.json), "double_encoded_value"};
        }
    }
    return string_value(raw, "value_not_of_type");
}

}  // namespace

TypeSet schema_types(const Value& schema, const Value& root) {
    return TypeSet(TypeResolver(root).types_of(schema));
}

TypedValue type_value(std::string_view text, TypeSet types) {
    if (types.is_string_only()) return string_value(text);
    if (types.is_untyped()) {
        const TypeSet structures(TypeSet::array | TypeSet::object);
        ReadStructure structure = read_structure(text, structures, false);
        return structure.json.empty() ? string_value(text) : TypedValue{std::move(structure.json), nullptr};
    }
    return types.has(TypeSet::string) ? type_union_with_string(text, types) : type_non_string(text, types, true);
}

bool may_be_non_string(std::string_view text, size_t n_known, TypeSet types) {
    if (types.is_string_only()) return false;
    if (text.empty() || (!types.is_untyped() && !types.has(TypeSet::string))) return true;
    if (types.is_untyped()) return text[0] == '{' || text[0] == '[';
    if ((text[0] == '{' && types.has(TypeSet::object)) || (text[0] == '[' && types.has(TypeSet::array))) return true;
    const auto is_prefix_of = [&](std::string_view word) { return word.substr(0, text.size()) == text; };
    if (types.has(TypeSet::boolean) && (is_prefix_of("true") || is_prefix_of("false"))) return true;
    if (types.has(TypeSet::null) && is_prefix_of("null")) return true;
    if (!types.has(TypeSet::integer) && !types.has(TypeSet::number)) return false;
    return text.find_first_not_of("-.0123456789", n_known) == std::string_view::npos;
}

}  // namespace espalier::text
