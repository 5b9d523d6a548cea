// Binding of arguments, attribute access, and the global functions.
#include "text/jinja/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "text/jinja/operators.h"

namespace espalier::text::jinja {
namespace {

// The sandbox that Hugging Face renders in refuses longer ranges.
constexpr int64_t kRangeMax = 100'000;

bool range(Runtime& rt, const CallArgs& args, Val& out) {
    if (!args.named.empty()) return rt.fail_type("range() takes no keyword arguments");
    const size_t n = args.positional.size();
    if (n == 0 || n > 3)
        return rt.fail_type(fmt::format("range expected at {} 1 argument, got {}", n == 0 ? "least" : "most", n));
    int64_t spec[3] = {0, 0, 1};
    for (size_t i = 0; i < n; ++i) {
        if (!to_integer(rt, args.positional[i], spec[n == 1 ? 1 : i])) return false;
    }
    const auto [start, stop, step] = spec;
    if (step == 0) return rt.fail(ErrorKind::value_error, "range() arg 3 must not be zero");
    const double count =
        std::max(0.0, step > 0 ? (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step)
                               : (static_cast<double>(start) - static_cast<double>(stop)) / -static_cast<double>(step));
    if (count > static_cast<double>(kRangeMax)) {
        return rt.fail(ErrorKind::overflow,
                       fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kRangeMax));
    }
    ValList items;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        items.emplace_back(i);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return rt.make_range({start, stop, step}, std::move(items), out);
}

// The members of a mapping, or of a list of pairs, and the named arguments.
bool collect_members(Runtime& rt, const char* function, const CallArgs& args, DictObject& dict) {
    if (args.positional.size() > 1)
        return rt.fail_type(fmt::format("{} expected at most 1 argument, got {}", function, args.positional.size()));
    if (!args.positional.empty()) {
        const Val& source = args.positional[0];
        if (const DictObject* other = source.as_dict()) {
            dict = *other;
        } else {
            ValList pairs;
            if (!iterate(rt, source, pairs)) return false;
            for (const Val& pair : pairs) {
                ValList parts;
                if (!iterate(rt, pair, parts)) return false;
                if (parts.size() != 2)
                    return rt.fail(ErrorKind::value_error, "dictionary update sequence element has not length 2");
                if (!is_hashable(parts[0])) return rt.fail_type(fmt::format("unhashable type: '{}'", type_name(parts[0])));
                dict.put(parts[0], parts[1]);
            }
        }
    }
    for (const auto& [name, value] : args.named) dict.put(Val(name), value);
    return true;
}

bool make_dictionary(Runtime& rt, const CallArgs& args, Val& out) {
    DictObject dict;
    return collect_members(rt, "dict", args, dict) && rt.make_dict(std::move(dict), out);
}

bool make_namespace(Runtime& rt, const CallArgs& args, Val& out) {
    auto object = std::make_unique<NamespaceObject>();
    if (!collect_members(rt, "namespace", args, object->attributes)) return false;
    out = Val(rt.own(std::move(object)));
    return rt.charge_bytes(sizeof(NamespaceObject));
}

bool make_cycler(Runtime& rt, const CallArgs& args, Val& out) {
    if (args.positional.empty()) return rt.fail(ErrorKind::runtime, "at least one item has to be provided");
    auto object = std::make_unique<CyclerObject>();
    object->items = args.positional;
    out = Val(rt.own(std::move(object)));
    return rt.charge_bytes(sizeof(CyclerObject));
}

bool make_joiner(Runtime& rt, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "joiner", args, {"sep"}, 0, bound)) return false;
    auto object = std::make_unique<JoinerObject>();
    object->separator = bound[0] != nullptr ? *bound[0] : Val(", ");
    out = Val(rt.own(std::move(object)));
    return rt.charge_bytes(sizeof(JoinerObject));
}

bool raise_exception(Runtime& rt, const CallArgs& args, Val&) {
    BoundArgs bound;
    if (!bind_args(rt, "raise_exception", args, {"message"}, 1, bound)) return false;
    std::string message;
    if (!to_text(rt, *bound[0], message)) return false;
    return rt.fail(ErrorKind::raise_exception, std::move(message));
}

bool strftime_now(Runtime& rt, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "strftime_now", args, {"format"}, 1, bound)) return false;
    if (!bound[0]->is_string())
        return rt.fail_type(fmt::format("strftime() argument 1 must be str, not {}", type_name(*bound[0])));
    const std::string& format = *bound[0]->as_string();
    constexpr size_t kFormatBytesMax = 1000;
    if (format.size() > kFormatBytesMax) return rt.fail(ErrorKind::limit, "format of strftime_now too long");
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char buffer[32 * kFormatBytesMax];
    const size_t n = std::strftime(buffer, sizeof(buffer), format.c_str(), &local);
    return rt.make_text(std::string(buffer, n), out);
}

constexpr std::pair<std::string_view, GlobalFunction> kGlobals[] = {
    {"cycler", make_cycler},
    {"dict", make_dictionary},
    {"joiner", make_joiner},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
};

bool is_dunder(std::string_view name) {
    return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

}  // namespace

GlobalFunction find_global(std::string_view name) {
    for (const auto& [known, function] : kGlobals) {
        if (known == name) return function;
    }
    return nullptr;
}

bool BoundArgs::flag(size_t i, bool fallback) const {
    return values[i] != nullptr ? is_true(*values[i]) : fallback;
}

bool bind_args(Runtime& rt, std::string_view function, const CallArgs& args, std::initializer_list<std::string_view> names,
               size_t required, BoundArgs& out) {
    if (args.positional.size() > names.size()) {
        return rt.fail_type(
            fmt::format("{}() takes {} arguments but {} were given", function, names.size(), args.positional.size()));
    }
    for (size_t i = 0; i < args.positional.size(); ++i) out.values[i] = &args.positional[i];
    for (const auto& [name, value] : args.named) {
        const auto* const found = std::find(names.begin(), names.end(), name);
        if (found == names.end())
            return rt.fail_type(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
        const auto i = static_cast<size_t>(found - names.begin());
        if (out.values[i] != nullptr)
            return rt.fail_type(fmt::format("{}() got multiple values for argument '{}'", function, name));
        out.values[i] = &value;
    }
    for (size_t i = 0; i < required; ++i) {
        if (out.values[i] == nullptr) {
            return rt.fail_type(fmt::format("{}() missing 1 required positional argument: '{}'", function, *(names.begin() + i)));
        }
    }
    return true;
}

bool get_path(Runtime& rt, const Val& item, const Val& path, Val& out) {
    out = item;
    if (path.as_int() != nullptr) return get_item(rt, item, path, out);
    if (!path.is_string()) return rt.fail_type("an attribute must be named by a string or an integer");
    std::string_view rest = *path.as_string();
    for (;;) {
        const size_t dot = rest.find('.');
        const std::string_view part = rest.substr(0, dot);
        const bool is_index = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
        const Val key = is_index ? Val(static_cast<int64_t>(std::stol(std::string(part)))) : Val(part);
        Val next;
        if (!get_item(rt, out, key, next)) return false;
        if (next.is_undefined() && !is_index && !get_attribute(rt, out, part, next)) return false;
        out = next;
        if (dot == std::string_view::npos) return true;
        rest.remove_prefix(dot + 1);
    }
}

bool get_attribute(Runtime& rt, const Val& value, std::string_view name, Val& out) {
    if (value.is_undefined()) return rt.fail_undefined(value);
    if (const MethodKind kind = method_kind(value, name); kind == MethodKind::callable) {
        out = Val(rt.own(std::make_unique<MethodObject>(value, name)));
        return rt.charge_bytes(sizeof(MethodObject));
    } else if (kind == MethodKind::forbidden || is_dunder(name)) {
        out = Val::undefined({UndefinedReason::Kind::unsafe,
                              fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(value)),
                              {}});
        return true;
    }
    const Object* object = value.as_object();
    const DictObject* members = value.as_dict();
    if (object != nullptr && object->kind == Object::Kind::name_space)
        members = &static_cast<const NamespaceObject*>(object)->attributes;
    if (const Val* found = members != nullptr ? members->find(name) : nullptr) {
        out = *found;
        return true;
    }
    if (const ListObject* list = value.as_list(); list != nullptr && list->is_group && (name == "grouper" || name == "list")) {
        out = list->items[name == "grouper" ? 0 : 1];
        return true;
    }
    if (object != nullptr && object->kind == Object::Kind::cycler && name == "current") {
        const auto* cycler = static_cast<const CyclerObject*>(object);
        out = cycler->items[cycler->position];
        return true;
    }
    out = Val::undefined(
        {UndefinedReason::Kind::attribute, std::string(name), value.is_none() ? "None" : qualified_type_name(value) + " object"});
    return true;
}

bool to_text(Runtime& rt, const Val& value, std::string& out) {
    out.clear();
    return append_str(rt, out, value);
}

bool to_integer(Runtime& rt, const Val& value, int64_t& out) {
    if (to_int64(value, out)) return true;
    if (value.as_big_int() != nullptr) return rt.fail(ErrorKind::overflow, "Python int too large to convert to C ssize_t");
    return rt.fail_type(fmt::format("'{}' object cannot be interpreted as an integer", type_name(value)));
}

}  // namespace espalier::text::jinja
