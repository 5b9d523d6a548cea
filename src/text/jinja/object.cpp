#include "text/jinja/object.h"

#include <cmath>
#include <functional>

#include "text/jinja/operators.h"

namespace espalier::text::jinja {
namespace {

// Below this, finding a key by looking at all of them is faster than a hash table.
constexpr size_t kLinearKeysMax = 16;

}  // namespace

Val::Type Val::type() const {
    static constexpr Type kTypes[] = {Type::undefined, Type::undefined,   Type::none, Type::boolean, Type::integer, Type::number,
                                      Type::string,    Type::big_integer, Type::list, Type::dict,    Type::object};
    static_assert(std::size(kTypes) == std::variant_size_v<Storage>);
    return kTypes[data_.index()];
}

Val Val::with_markup(bool is_markup) const {
    Val copy = *this;
    if (auto* text = std::get_if<Text>(&copy.data_)) text->is_markup = is_markup;
    return copy;
}

bool Val::is_same(const Val& other) const {
    if (type() != other.type()) return false;
    switch (type()) {
        case Type::list: return as_list() == other.as_list();
        case Type::dict: return as_dict() == other.as_dict();
        case Type::object: return as_object() == other.as_object();
        case Type::undefined: return as_undefined() == other.as_undefined();
        default: return equals(*this, other);
    }
}

const Val* DictObject::find(const Val& key) const {
    const size_t place = place_of(key);
    return place < members.size() ? &members[place].second : nullptr;
}

const Val* DictObject::find(std::string_view key) const {
    if (members.size() > kLinearKeysMax) return find(Val(key));
    for (const auto& [name, value] : members) {
        if (const std::string* text = name.as_string(); text != nullptr && *text == key) return &value;
    }
    return nullptr;
}

size_t DictObject::place_of(const Val& key) const {
    if (members.size() <= kLinearKeysMax) {
        size_t place = 0;
        while (place < members.size() && !equals(members[place].first, key)) ++place;
        return place;
    }
    const auto [begin, end] = index_.equal_range(hash_of(key));
    for (auto entry = begin; entry != end; ++entry) {
        if (equals(members[entry->second].first, key)) return entry->second;
    }
    return members.size();
}

void DictObject::put(Val key, Val value) {
    const size_t place = place_of(key);
    if (place < members.size()) {
        members[place].second = std::move(value);
        return;
    }
    if (members.size() > kLinearKeysMax) index_.emplace(hash_of(key), place);
    members.emplace_back(std::move(key), std::move(value));
    if (members.size() == kLinearKeysMax + 1) {
        for (size_t i = 0; i < members.size(); ++i) index_.emplace(hash_of(members[i].first), i);
    }
}

bool is_hashable(const Val& value) {
    if (value.as_dict() != nullptr) return false;
    const ListObject* list = value.as_list();
    if (list == nullptr) return true;
    if (list->kind != ListObject::Kind::tuple) return list->kind == ListObject::Kind::range;
    for (const Val& item : list->items) {
        if (!is_hashable(item)) return false;
    }
    return true;
}

size_t hash_of(const Val& value) {
    if (const std::string* text = value.as_string()) return std::hash<std::string>()(*text);
    if (const bool* boolean = value.as_bool()) return std::hash<double>()(*boolean ? 1 : 0);
    if (const int64_t* integer = value.as_int()) return std::hash<double>()(static_cast<double>(*integer));
    if (const double* number = value.as_float()) return std::hash<double>()(*number);
    if (const ListObject* list = value.as_list()) {
        size_t hash = list->items.size();
        for (const Val& item : list->items) hash = hash * 31 + hash_of(item);
        return hash;
    }
    return static_cast<size_t>(value.type());
}

}  // namespace espalier::text::jinja
