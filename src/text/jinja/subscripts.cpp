// Iteration, length, value[index] and value[start:stop:step].
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/big_integer.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

Val missing_element(Runtime& rt, const Val& value, const Val& index) {
    std::string owner = value.is_none() ? "None" : qualified_type_name(value) + " object";
    if (index.is_string()) return Val::undefined({UndefinedReason::Kind::attribute, *index.as_string(), std::move(owner)});
    std::string name;
    if (!append_repr(rt, name, index)) return {};
    return Val::undefined({UndefinedReason::Kind::element, std::move(name), std::move(owner)});
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string_view character_at(std::string_view text, int64_t index) {
    if (index < 0) {
        size_t end = text.size();
        while (end > 0) {
            const size_t bytes = decode_before(text, end).bytes;
            if (++index == 0) return text.substr(end - bytes, bytes);
            end -= bytes;
        }
        return {};
    }
    const size_t begin = byte_offset(text, static_cast<size_t>(index));
    return begin < text.size() ? text.substr(begin, decode_at(text, begin).bytes) : std::string_view();
}

struct Span {
    int64_t start = 0;
    int64_t step = 1;
    int64_t count = 0;
};

bool read_bound(Runtime& rt, const Val& value, int64_t fallback, int64_t& out) {
    if (value.is_none()) {
        out = fallback;
        return true;
    }
    if (value.as_big_int() != nullptr) {
        out = value.as_big_int()->digits[0] == '-' ? INT64_MIN / 4 : INT64_MAX / 4;
        return true;
    }
    if (value.is_undefined() || !to_int64(value, out)) {
        return rt.fail_type("slice indices must be integers or None or have an __index__ method");
    }
    out = std::clamp(out, INT64_MIN / 4, INT64_MAX / 4);
    return true;
}

// Python's slice.indices for a sequence of that length.
bool resolve(Runtime& rt, const SliceBounds& bounds, int64_t length, Span& span) {
    if (!read_bound(rt, bounds.step, 1, span.step)) return false;
    if (span.step == 0) return rt.fail(ErrorKind::value_error, "slice step cannot be zero");
    const bool is_backward = span.step < 0;
    const int64_t lowest = is_backward ? -1 : 0;
    const int64_t highest = is_backward ? length - 1 : length;
    const auto place = [&](const Val& bound, int64_t fallback, int64_t& out) {
        if (!read_bound(rt, bound, fallback, out)) return false;
        if (bound.is_none()) return true;
        if (out < 0) out += length;
        out = std::clamp(out, lowest, highest);
        return true;
    };
    int64_t stop = 0;
    if (!place(bounds.start, is_backward ? highest : lowest, span.start)) return false;
    if (!place(bounds.stop, is_backward ? lowest : highest, stop)) return false;
    const int64_t distance = is_backward ? span.start - stop : stop - span.start;
    const int64_t stride = is_backward ? -span.step : span.step;
    span.count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
    return true;
}

bool slice_text(Runtime& rt, const Val& value, const SliceBounds& bounds, Val& out) {
    const std::string& text = *value.as_string();
    const bool simple = is_ascii(text);
    std::vector<std::string_view> characters;
    if (!simple && !rt.charge_bytes(text.size() * sizeof(std::string_view))) return false;
    if (!simple) characters = split_code_points(text);
    Span span;
    if (!rt.charge_steps(simple ? 0 : characters.size() / 64)) return false;
    if (!resolve(rt, bounds, static_cast<int64_t>(simple ? text.size() : characters.size()), span)) return false;
    std::string cut;
    if (simple && span.step == 1) {
        cut = text.substr(static_cast<size_t>(span.start), static_cast<size_t>(span.count));
    } else {
        for (int64_t i = 0; i < span.count; ++i) {
            const auto at = static_cast<size_t>(span.start + i * span.step);
            if (simple) cut += text[at];
            else cut += characters[at];
        }
    }
    if (!rt.make_text(std::move(cut), out)) return false;
    out = out.with_markup(value.is_markup());
    return true;
}

}  // namespace

std::string qualified_type_name(const Val& value) {
    const Object* object = value.as_object();
    if (value.is_undefined()) return "jinja2.runtime.Undefined";
    if (value.is_string() && value.is_markup()) return "markupsafe.Markup";
    if (object == nullptr) return type_name(value);
    switch (object->kind) {
        case Object::Kind::function:
        case Object::Kind::method: return type_name(value);
        case Object::Kind::macro:
        case Object::Kind::loop: return "jinja2.runtime." + type_name(value);
        default: return "jinja2.utils." + type_name(value);
    }
}

bool iterate(Runtime& rt, const Val& value, ValList& out) {
    if (const ListObject* list = value.as_list()) {
        if (!rt.charge_bytes(list->items.size() * sizeof(Val))) return false;
        if (list->is_consumed == nullptr) {
            out = list->items;
        } else if (!*list->is_consumed) {
            out = list->items;
            *list->is_consumed = true;
        }
        return true;
    }
    if (const DictObject* dict = value.as_dict()) {
        if (!rt.charge_bytes(dict->members.size() * sizeof(Val))) return false;
        for (const auto& member : dict->members) out.push_back(member.first);
        return true;
    }
    if (const std::string* text = value.as_string()) {
        if (!rt.charge_bytes(text->size() * sizeof(Val)) || !rt.charge_steps(text->size())) return false;
        for (const std::string_view character : split_code_points(*text)) out.emplace_back(character);
        return true;
    }
    if (value.is_undefined()) return true;
    return rt.fail_type(fmt::format("'{}' object is not iterable", type_name(value)));
}

bool length_of(Runtime& rt, const Val& value, int64_t& out) {
    const ListObject* list = value.as_list();
    if (value.is_undefined()) out = 0;
    else if (list != nullptr && list->has_length()) out = static_cast<int64_t>(list->items.size());
    else if (const DictObject* dict = value.as_dict()) out = static_cast<int64_t>(dict->members.size());
    else if (const std::string* text = value.as_string()) out = static_cast<int64_t>(count_code_points(*text));
    else return rt.fail_type(fmt::format("object of type '{}' has no len()", type_name(value)));
    return true;
}

bool get_item(Runtime& rt, const Val& value, const Val& index, Val& out) {
    int64_t i = 0;
    if (value.is_undefined()) return rt.fail_undefined(value);
    if (const DictObject* dict = value.as_dict()) {
        const Val* found = is_hashable(index) ? dict->find(index) : nullptr;
        out = found != nullptr ? *found : missing_element(rt, value, index);
        return true;
    }
    if (const ListObject* list = value.as_list(); list != nullptr && list->has_elements() && to_int64(index, i)) {
        const auto length = static_cast<int64_t>(list->items.size());
        if (i < 0) i += length;
        out = i >= 0 && i < length ? list->items[static_cast<size_t>(i)] : missing_element(rt, value, index);
        return true;
    }
    if (const std::string* text = value.as_string(); text != nullptr && to_int64(index, i)) {
        if (!rt.charge_steps(text->size() / 64)) return false;
        const std::string_view character = character_at(*text, i);
        out = character.empty() ? missing_element(rt, value, index) : Val(character).with_markup(value.is_markup());
        return true;
    }
    out = missing_element(rt, value, index);
    return true;
}

bool get_slice(Runtime& rt, const Val& value, const SliceBounds& bounds, Val& out) {
    if (value.is_undefined()) return rt.fail_undefined(value);
    if (value.is_string()) return slice_text(rt, value, bounds, out);
    const ListObject* list = value.as_list();
    if (value.as_dict() != nullptr) return rt.fail_type("unhashable type: 'slice'");
    if (list == nullptr || !list->has_elements())
        return rt.fail_type(fmt::format("'{}' object is not subscriptable", type_name(value)));
    Span span;
    if (!resolve(rt, bounds, static_cast<int64_t>(list->items.size()), span)) return false;
    ValList items;
    items.reserve(static_cast<size_t>(span.count));
    for (int64_t i = 0; i < span.count; ++i) items.push_back(list->items[static_cast<size_t>(span.start + i * span.step)]);
    if (list->kind == ListObject::Kind::range) {
        const int64_t* spec = list->range_spec;
        const int64_t start = spec[0] + span.start * spec[2];
        return rt.make_range({start, start + span.count * span.step * spec[2], span.step * spec[2]}, std::move(items), out);
    }
    return rt.make_list(std::move(items), list->kind, out);
}

}  // namespace espalier::text::jinja
