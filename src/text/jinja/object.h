// The values that a template computes with: text/chat_value.h widened by what only exists while a template runs (tuples,
// iterators, namespaces, macros, methods). Strings are shared with the Values they come from.
//
// Lists and dictionaries are immutable, as in the sandbox that Hugging Face renders in. What can change (namespaces, loops,
// iterators' positions) is owned by the Runtime of the rendering, so that no cycle of owners can arise; depth is counted at
// construction, so that no chain of values is too deep to walk or to free.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/chat_value.h"

namespace espalier::text::jinja {

struct ListObject;
struct DictObject;
struct Object;

// Why a value is undefined; the message is made only when it is needed.
struct UndefinedReason {
    enum class Kind { variable, attribute, element, hint, unsafe };
    Kind kind = Kind::variable;
    std::string name;   // variable, attribute, repr of the element's index, or the whole message for hint and unsafe
    std::string owner;  // the type that lacks the attribute or element
};

class Val {
public:
    enum class Type { undefined, none, boolean, integer, number, big_integer, string, list, dict, object };

    Val() = default;                      // undefined
    Val(bool value) : data_(value) {}     // NOLINT: implicit on purpose
    Val(int64_t value) : data_(value) {}  // NOLINT: implicit on purpose
    Val(double value) : data_(value) {}   // NOLINT: implicit on purpose
    Val(std::string value) : data_(Text{std::make_shared<const std::string>(std::move(value)), false}) {}  // NOLINT
    Val(std::string_view value) : Val(std::string(value)) {}                                               // NOLINT
    Val(const char* value) : Val(std::string(value)) {}                                                    // NOLINT
    explicit Val(std::shared_ptr<const std::string> value) : data_(Text{std::move(value), false}) {}
    explicit Val(BigInt value) : data_(std::make_shared<const BigInt>(std::move(value))) {}
    explicit Val(std::shared_ptr<const ListObject> value) : data_(std::move(value)) {}
    explicit Val(std::shared_ptr<const DictObject> value) : data_(std::move(value)) {}
    explicit Val(Object* value) : data_(value) {}
    static Val none() { return Val(Storage(None{})); }
    static Val undefined(UndefinedReason reason) {
        return Val(Storage(std::make_shared<const UndefinedReason>(std::move(reason))));
    }
    static Val count(size_t value) { return {static_cast<int64_t>(value)}; }

    Type type() const;
    bool is_undefined() const { return type() == Type::undefined; }
    bool is_none() const { return std::holds_alternative<None>(data_); }
    bool is_string() const { return std::holds_alternative<Text>(data_); }
    const bool* as_bool() const { return std::get_if<bool>(&data_); }
    const int64_t* as_int() const { return std::get_if<int64_t>(&data_); }
    const double* as_float() const { return std::get_if<double>(&data_); }
    const BigInt* as_big_int() const { return shared<const BigInt>(); }
    const ListObject* as_list() const { return shared<const ListObject>(); }
    const DictObject* as_dict() const { return shared<const DictObject>(); }
    const UndefinedReason* as_undefined() const { return shared<const UndefinedReason>(); }
    const std::string* as_string() const {
        const auto* text = std::get_if<Text>(&data_);
        return text != nullptr ? text->value.get() : nullptr;
    }
    Object* as_object() const {
        const auto* pointer = std::get_if<Object*>(&data_);
        return pointer != nullptr ? *pointer : nullptr;
    }

    // Text marked safe (markupsafe.Markup): only `+` and the escape filters look at it, since autoescape is off.
    bool is_markup() const {
        const auto* text = std::get_if<Text>(&data_);
        return text != nullptr && text->is_markup;
    }
    Val with_markup(bool is_markup) const;

    // The same object, as Python's `is`: equal for small scalars, same storage for the rest.
    bool is_same(const Val& other) const;

private:
    struct None {};
    struct Text {
        std::shared_ptr<const std::string> value;
        bool is_markup = false;
    };
    using Storage = std::variant<std::monostate, std::shared_ptr<const UndefinedReason>, None, bool, int64_t, double, Text,
                                 std::shared_ptr<const BigInt>, std::shared_ptr<const ListObject>,
                                 std::shared_ptr<const DictObject>, Object*>;
    explicit Val(Storage data) : data_(std::move(data)) {}
    template <class T>
    T* shared() const {
        const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
        return pointer != nullptr ? pointer->get() : nullptr;
    }
    Storage data_;
};

using ValList = std::vector<Val>;

struct ListObject {
    // iterator: consumed by one walk, has no length and no elements by index; type_name says which.
    enum class Kind { list, tuple, range, iterator, dict_view };
    Kind kind = Kind::list;
    ValList items;
    int depth = 1;
    size_t weight = 1;  // values inside, counted once for each way to reach them
    const char* type_name = "list";
    bool is_group = false;        // groupby's pairs have .grouper and .list
    int64_t range_spec[3] = {};   // start, stop, step of a range, as it prints
    bool* is_consumed = nullptr;  // of an iterator; owned by the Runtime

    bool has_elements() const { return kind == Kind::list || kind == Kind::tuple || kind == Kind::range; }
    bool has_length() const { return kind != Kind::iterator; }
};

struct DictObject {
    std::vector<std::pair<Val, Val>> members;  // insertion order, unique hashable keys
    int depth = 1;
    size_t weight = 1;

    const Val* find(const Val& key) const;
    const Val* find(std::string_view key) const;
    // Replaces or appends.
    void put(Val key, Val value);

private:
    size_t place_of(const Val& key) const;
    std::unordered_multimap<size_t, size_t> index_;  // hash of the key to place; filled once there are many members
};

// Hash and equality of dictionary keys: 1, 1.0 and true are one key.
bool is_hashable(const Val& value);
size_t hash_of(const Val& value);

// Things with identity, owned by the Runtime.
struct Object {
    enum class Kind { name_space, macro, function, method, loop, cycler, joiner };
    explicit Object(Kind object_kind) : kind(object_kind) {}
    virtual ~Object() = default;
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    const Kind kind;
};

}  // namespace espalier::text::jinja
