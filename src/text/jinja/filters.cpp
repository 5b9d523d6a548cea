// The table of filters, and the two that fit nowhere else.
#include "text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/operators.h"

namespace espalier::text::jinja {
namespace {

bool filter_attr(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "attr", args, {"name"}, 1, bound)) return false;
    std::string name;
    if (!to_text(rt, *bound[0], name)) return false;
    if (value.as_dict() != nullptr && method_kind(value, name) == MethodKind::none) {  // keys are no attributes
        out = Val::undefined({UndefinedReason::Kind::attribute, std::move(name), "dict object"});
        return true;
    }
    return get_attribute(rt, value, name, out);
}

bool filter_default(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "default", args, {"default_value", "boolean"}, 0, bound)) return false;
    const bool is_replaced = value.is_undefined() || (bound.flag(1, false) && !is_true(value));
    if (!is_replaced) out = value;
    else out = bound[0] != nullptr ? *bound[0] : Val("");
    return true;
}

constexpr std::pair<std::string_view, FilterFunction> kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"first", filter_first},
    {"float", filter_float},
    {"forceescape", filter_force_escape},
    {"format", filter_format},
    {"groupby", filter_groupby},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_lower},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"unique", filter_unique},
    {"upper", filter_upper},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

constexpr std::string_view kUnsupportedFilters[] = {"filesizeformat", "pprint",   "random", "striptags",
                                                    "urlize",         "wordwrap", "xmlattr"};

}  // namespace

FilterFunction find_filter(std::string_view name) {
    for (const auto& [known, function] : kFilters) {
        if (known == name) return function;
    }
    return nullptr;
}

bool is_unsupported_filter(std::string_view name) {
    return std::find(std::begin(kUnsupportedFilters), std::end(kUnsupportedFilters), name) != std::end(kUnsupportedFilters);
}

bool Runtime::apply_filter(std::string_view name, const Val& value, const CallArgs& args, Val& out) {
    const FilterFunction function = find_filter(name);
    if (function == nullptr) {
        if (is_unsupported_filter(name))
            return fail(ErrorKind::unsupported, fmt::format("the filter '{}' is not supported", name));
        return fail(ErrorKind::runtime, fmt::format("No filter named '{}'.", name));
    }
    return charge_steps(1) && function(*this, value, args, out);
}

}  // namespace espalier::text::jinja
