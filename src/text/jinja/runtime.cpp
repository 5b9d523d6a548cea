#include "text/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/python_text.h"

namespace espalier::text::jinja {
namespace {

// Deeper values are refused when they are made: comparing, printing and freeing them recurses.
constexpr int kValueDepthMax = 600;
// A value that contains another twice doubles the work of walking it; a few dozen such steps would never end.
constexpr size_t kValueWeightMax = size_t{1} << 22;

}  // namespace

std::string_view to_string(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::syntax: return "syntax";
        case ErrorKind::unsupported: return "unsupported";
        case ErrorKind::raise_exception: return "raise_exception";
        case ErrorKind::undefined: return "undefined";
        case ErrorKind::type_error: return "TypeError";
        case ErrorKind::value_error: return "ValueError";
        case ErrorKind::zero_division: return "ZeroDivisionError";
        case ErrorKind::overflow: return "OverflowError";
        case ErrorKind::attribute_error: return "AttributeError";
        case ErrorKind::index_error: return "IndexError";
        case ErrorKind::key_error: return "KeyError";
        case ErrorKind::assertion_error: return "AssertionError";
        case ErrorKind::filter_argument: return "FilterArgumentError";
        case ErrorKind::security: return "SecurityError";
        case ErrorKind::runtime: return "TemplateRuntimeError";
        case ErrorKind::limit: return "limit";
    }
    return "unknown";
}

int depth_of(const Val& value) {
    if (const ListObject* list = value.as_list()) return list->depth;
    if (const DictObject* dict = value.as_dict()) return dict->depth;
    return 0;
}

size_t weight_of(const Val& value) {
    if (const ListObject* list = value.as_list()) return list->weight;
    if (const DictObject* dict = value.as_dict()) return dict->weight;
    return 1;
}

std::string undefined_message(const Val& value) {
    const UndefinedReason* reason = value.as_undefined();
    if (reason == nullptr) return "value is undefined";
    std::string name;
    append_string_repr(name, reason->name);
    switch (reason->kind) {
        case UndefinedReason::Kind::variable: return name + " is undefined";
        case UndefinedReason::Kind::attribute: return fmt::format("'{}' has no attribute {}", reason->owner, name);
        case UndefinedReason::Kind::element: return fmt::format("{} has no element {}", reason->owner, reason->name);
        case UndefinedReason::Kind::hint:
        case UndefinedReason::Kind::unsafe: return reason->name;
    }
    return "value is undefined";
}

bool Runtime::fail(ErrorKind kind, std::string message) {
    if (!has_failed_) {
        has_failed_ = true;
        error_ = {kind, std::move(message), line_};
    }
    return false;
}

bool Runtime::fail_undefined(const Val& value) {
    const UndefinedReason* reason = value.as_undefined();
    const bool is_unsafe = reason != nullptr && reason->kind == UndefinedReason::Kind::unsafe;
    return fail(is_unsafe ? ErrorKind::security : ErrorKind::undefined, undefined_message(value));
}

bool Runtime::charge_steps(size_t n) {
    const auto left = static_cast<size_t>(limits_.steps - steps_);
    if (n > left) return fail(ErrorKind::limit, fmt::format("the template ran more than {} steps", limits_.steps));
    steps_ += static_cast<int64_t>(n);
    return true;
}

bool Runtime::charge_comparison(const Val& a, const Val& b) {
    size_t cost = std::min(weight_of(a), weight_of(b));
    if (a.is_string() && b.is_string()) cost += std::min(a.as_string()->size(), b.as_string()->size()) / 256;
    return charge_steps(cost);
}

bool Runtime::charge_bytes(size_t n) {
    if (n > limits_.text_bytes) {
        return fail(ErrorKind::limit,
                    fmt::format("the template made a text or list of {} bytes, the limit is {}", n, limits_.text_bytes));
    }
    created_bytes_ += n;
    if (created_bytes_ > limits_.created_bytes) {
        return fail(ErrorKind::limit,
                    fmt::format("the template made more than {} bytes of text and lists", limits_.created_bytes));
    }
    return true;
}

bool Runtime::check_shape(int depth, size_t weight) {
    if (depth > kValueDepthMax) return fail(ErrorKind::limit, fmt::format("value nested deeper than {} levels", kValueDepthMax));
    if (weight > kValueWeightMax)
        return fail(ErrorKind::limit, fmt::format("value made of more than {} values", kValueWeightMax));
    return true;
}

bool Runtime::finish_list(std::shared_ptr<ListObject> list, Val& out) {
    if (!charge_steps(list->items.size()) || !charge_bytes(list->items.size() * sizeof(Val))) return false;
    for (const Val& item : list->items) {
        list->depth = std::max(list->depth, depth_of(item) + 1);
        list->weight += weight_of(item);
    }
    if (!check_shape(list->depth, list->weight)) return false;
    out = Val(std::shared_ptr<const ListObject>(std::move(list)));
    return true;
}

bool Runtime::make_list(ValList items, ListObject::Kind kind, Val& out) {
    auto list = std::make_shared<ListObject>();
    list->kind = kind;
    list->items = std::move(items);
    if (kind == ListObject::Kind::tuple) list->type_name = "tuple";
    return finish_list(std::move(list), out);
}

bool Runtime::make_iterator(ValList items, const char* type_name, Val& out) {
    auto list = std::make_shared<ListObject>();
    list->kind = ListObject::Kind::iterator;
    list->items = std::move(items);
    list->type_name = type_name;
    flags_.push_back(std::make_unique<bool>(false));
    list->is_consumed = flags_.back().get();
    return finish_list(std::move(list), out);
}

bool Runtime::make_view(ValList items, const char* type_name, Val& out) {
    auto list = std::make_shared<ListObject>();
    list->kind = ListObject::Kind::dict_view;
    list->items = std::move(items);
    list->type_name = type_name;
    return finish_list(std::move(list), out);
}

bool Runtime::make_range(RangeSpec spec, ValList items, Val& out) {
    auto list = std::make_shared<ListObject>();
    list->kind = ListObject::Kind::range;
    list->type_name = "range";
    list->items = std::move(items);
    list->range_spec[0] = spec.start;
    list->range_spec[1] = spec.stop;
    list->range_spec[2] = spec.step;
    return finish_list(std::move(list), out);
}

bool Runtime::make_dict(DictObject dict, Val& out) {
    if (!charge_steps(dict.members.size()) || !charge_bytes(dict.members.size() * 2 * sizeof(Val))) return false;
    for (const auto& [key, value] : dict.members) {
        dict.depth = std::max({dict.depth, depth_of(key) + 1, depth_of(value) + 1});
        dict.weight += weight_of(key) + weight_of(value);
    }
    if (!check_shape(dict.depth, dict.weight)) return false;
    out = Val(std::shared_ptr<const DictObject>(std::make_shared<DictObject>(std::move(dict))));
    return true;
}

bool Runtime::make_text(std::string text, Val& out) {
    if (!charge_bytes(text.size())) return false;
    out = Val(std::move(text));
    return true;
}

}  // namespace espalier::text::jinja
