// The tables of filters, tests, methods and global functions, and how their arguments are bound.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "text/jinja/object.h"
#include "text/jinja/runtime.h"

namespace espalier::text::jinja {

using FilterFunction = bool (*)(Runtime& rt, const Val& value, const CallArgs& args, Val& out);
using TestFunction = bool (*)(Runtime& rt, const Val& value, const CallArgs& args, bool& out);
using GlobalFunction = bool (*)(Runtime& rt, const CallArgs& args, Val& out);

// nullptr if there is no such filter, test or function.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
GlobalFunction find_global(std::string_view name);
// True for what Jinja has and this subset leaves out, so that the error can say so.
bool is_unsupported_filter(std::string_view name);

struct FunctionObject : Object {
    FunctionObject(std::string_view function_name, GlobalFunction function_pointer)
        : Object(Kind::function), name(function_name), function(function_pointer) {}
    std::string name;
    GlobalFunction function;
};

struct NamespaceObject : Object {
    NamespaceObject() : Object(Kind::name_space) {}
    DictObject attributes;
};

struct MethodObject : Object {
    MethodObject(Val method_self, std::string_view method_name)
        : Object(Kind::method), self(std::move(method_self)), name(method_name) {}
    Val self;
    std::string name;
};

struct CyclerObject : Object {
    CyclerObject() : Object(Kind::cycler) {}
    ValList items;
    size_t position = 0;
};

struct JoinerObject : Object {
    JoinerObject() : Object(Kind::joiner) {}
    Val separator;
    bool is_used = false;
};

// Methods of strings, dictionaries, lists and cyclers.
enum class MethodKind { none, callable, forbidden };  // forbidden: would change the value, which the sandbox refuses
MethodKind method_kind(const Val& self, std::string_view name);
[[nodiscard]] bool call_method(Runtime& rt, const Val& self, std::string_view name, const CallArgs& args, Val& out);

// Arguments by parameter: positional ones first, then named. Absent ones are nullptr.
struct BoundArgs {
    std::array<const Val*, 8> values{};
    const Val* operator[](size_t i) const { return values[i]; }
    // The value, or a default where the argument is absent.
    bool flag(size_t i, bool fallback) const;
};
// The first `required` parameters must be given.
[[nodiscard]] bool bind_args(Runtime& rt, std::string_view function, const CallArgs& args,
                             std::initializer_list<std::string_view> names, size_t required, BoundArgs& out);

// The attribute path "a.b.0" of filters such as map and sort, applied to one item; missing parts give undefined.
[[nodiscard]] bool get_path(Runtime& rt, const Val& item, const Val& path, Val& out);

// value.name, value['name'] where the key exists, a method, or undefined.
[[nodiscard]] bool get_attribute(Runtime& rt, const Val& value, std::string_view name, Val& out);

// str(value) as a new string.
[[nodiscard]] bool to_text(Runtime& rt, const Val& value, std::string& out);
// An argument that must be an integer.
[[nodiscard]] bool to_integer(Runtime& rt, const Val& value, int64_t& out);

}  // namespace espalier::text::jinja
