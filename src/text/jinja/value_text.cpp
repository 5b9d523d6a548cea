// str(), repr() and json.dumps() of template values.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/big_integer.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

bool check_size(Runtime& rt, const std::string& out) {
    return out.size() <= rt.limits().text_bytes || rt.charge_bytes(out.size());
}

bool append_list_repr(Runtime& rt, std::string& out, const ListObject& list, int depth) {
    if (list.kind == ListObject::Kind::range) {
        out += fmt::format("range({}, {}", list.range_spec[0], list.range_spec[1]);
        out += list.range_spec[2] == 1 ? ")" : fmt::format(", {})", list.range_spec[2]);
        return true;
    }
    if (list.kind == ListObject::Kind::iterator) {
        out += fmt::format("<{} object>", list.type_name);
        return true;
    }
    const bool is_view = list.kind == ListObject::Kind::dict_view;
    const bool is_tuple = list.kind == ListObject::Kind::tuple;
    if (is_view) out += fmt::format("{}(", list.type_name);
    out += is_tuple ? '(' : '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
        if (i > 0) out += ", ";
        if (!append_repr(rt, out, list.items[i], depth + 1)) return false;
    }
    if (is_tuple && list.items.size() == 1) out += ',';
    out += is_tuple ? ')' : ']';
    if (is_view) out += ')';
    return check_size(rt, out);
}

bool append_dict_repr(Runtime& rt, std::string& out, const DictObject& dict, int depth) {
    out += '{';
    bool is_first = true;
    for (const auto& [key, value] : dict.members) {
        if (!is_first) out += ", ";
        is_first = false;
        if (!append_repr(rt, out, key, depth + 1)) return false;
        out += ": ";
        if (!append_repr(rt, out, value, depth + 1)) return false;
    }
    out += '}';
    return check_size(rt, out);
}

// A dictionary key as JSON writes it.
bool json_key(Runtime& rt, const Val& key, std::string& out) {
    if (const std::string* text = key.as_string()) out = *text;
    else if (const bool* boolean = key.as_bool()) out = *boolean ? "true" : "false";
    else if (key.is_none()) out = "null";
    else if (const double* number = key.as_float()) out = json_float(*number);
    else if (is_integer(key)) out = integer_digits(key);
    else return rt.fail_type(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    return true;
}

void new_line(std::string& out, const JsonStyle& style, int depth) {
    if (!style.has_indent) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += style.indent;
}

bool append_json_list(Runtime& rt, std::string& out, const ListObject& list, const JsonStyle& style, int depth) {
    if (list.items.empty()) {
        out += "[]";
        return true;
    }
    out += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
        if (i > 0) out += style.item_separator;
        new_line(out, style, depth + 1);
        if (!append_json(rt, out, list.items[i], style, depth + 1)) return false;
    }
    new_line(out, style, depth);
    out += ']';
    return check_size(rt, out);
}

bool append_json_dict(Runtime& rt, std::string& out, const DictObject& dict, const JsonStyle& style, int depth) {
    if (dict.members.empty()) {
        out += "{}";
        return true;
    }
    std::vector<const std::pair<Val, Val>*> order;
    for (const auto& member : dict.members) order.push_back(&member);
    if (style.sort_keys) {
        bool is_comparable = true;
        std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
            bool is_less = false;
            is_comparable = is_comparable && less(rt, a->first, b->first, is_less);
            return is_comparable && is_less;
        });
        if (!is_comparable) return false;
    }
    out += '{';
    for (size_t i = 0; i < order.size(); ++i) {
        if (i > 0) out += style.item_separator;
        new_line(out, style, depth + 1);
        std::string key;
        if (!json_key(rt, order[i]->first, key)) return false;
        append_json_string(out, key, style.ascii ? JsonAscii::escape : JsonAscii::keep);
        out += style.key_separator;
        if (!append_json(rt, out, order[i]->second, style, depth + 1)) return false;
    }
    new_line(out, style, depth);
    out += '}';
    return check_size(rt, out);
}

}  // namespace

bool append_str(Runtime& rt, std::string& out, const Val& value) {
    if (const std::string* text = value.as_string()) {
        if (!rt.charge_bytes(text->size())) return false;
        out += *text;
        return check_size(rt, out);
    }
    if (value.is_undefined()) return true;
    return append_repr(rt, out, value);
}

bool append_repr(Runtime& rt, std::string& out, const Val& value, int depth) {
    if (depth > rt.limits().depth) return rt.fail(ErrorKind::limit, "value nested too deeply to print");
    if (!rt.charge_steps(1)) return false;
    switch (value.type()) {
        case Val::Type::undefined: out += "Undefined"; return true;
        case Val::Type::none: out += "None"; return true;
        case Val::Type::boolean: out += *value.as_bool() ? "True" : "False"; return true;
        case Val::Type::integer:
        case Val::Type::big_integer: out += integer_digits(value); return true;
        case Val::Type::number: out += float_repr(*value.as_float()); return true;
        case Val::Type::string:
            if (value.is_markup()) out += "Markup(";
            append_string_repr(out, *value.as_string());
            if (value.is_markup()) out += ')';
            return check_size(rt, out);
        case Val::Type::list: return append_list_repr(rt, out, *value.as_list(), depth);
        case Val::Type::dict: return append_dict_repr(rt, out, *value.as_dict(), depth);
        case Val::Type::object: out += fmt::format("<{}>", type_name(value)); return true;
    }
    return true;
}

bool append_json(Runtime& rt, std::string& out, const Val& value, const JsonStyle& style, int depth) {
    if (depth > 2 * rt.limits().depth) return rt.fail(ErrorKind::limit, "value nested too deeply for JSON");
    if (!rt.charge_steps(1)) return false;
    const ListObject* list = value.as_list();
    if (value.is_none()) {
        out += "null";
    } else if (const bool* boolean = value.as_bool()) {
        out += *boolean ? "true" : "false";
    } else if (is_integer(value)) {
        out += integer_digits(value);
    } else if (const double* number = value.as_float()) {
        out += json_float(*number);
    } else if (const std::string* text = value.as_string()) {
        append_json_string(out, *text, style.ascii ? JsonAscii::escape : JsonAscii::keep);
        return check_size(rt, out);
    } else if (list != nullptr && (list->kind == ListObject::Kind::list || list->kind == ListObject::Kind::tuple)) {
        return append_json_list(rt, out, *list, style, depth);
    } else if (const DictObject* dict = value.as_dict()) {
        return append_json_dict(rt, out, *dict, style, depth);
    } else {
        return rt.fail_type(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
    return true;
}

}  // namespace espalier::text::jinja
