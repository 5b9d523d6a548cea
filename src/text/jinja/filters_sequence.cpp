// Filters that walk sequences.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

constexpr const char* kGenerator = "generator";

Val empty_sequence(const char* message) {
    return Val::undefined({UndefinedReason::Kind::hint, message, {}});
}

// select, reject, selectattr and rejectattr.
bool choose(Runtime& rt, const Val& value, const CallArgs& args, bool by_attribute, bool wants, Val& out) {
    ValList chosen;
    ValList items;
    if (!is_true(value)) return rt.make_iterator({}, kGenerator, out);
    if (!iterate(rt, value, items)) return false;
    const size_t skip = by_attribute ? 1 : 0;
    if (args.positional.size() < skip) return rt.fail(ErrorKind::filter_argument, "Missing parameter for attribute name");
    CallArgs test_args;
    test_args.named = args.named;
    std::string test;
    if (args.positional.size() > skip) {
        if (!to_text(rt, args.positional[skip], test)) return false;
        test_args.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(skip) + 1, args.positional.end());
    }
    for (const Val& item : items) {
        Val tested = item;
        bool passes = false;
        if (by_attribute && !get_path(rt, item, args.positional[0], tested)) return false;
        if (!rt.charge_steps(1)) return false;
        if (test.empty()) passes = is_true(tested);
        else if (!rt.apply_test(test, tested, test_args, passes)) return false;
        if (passes == wants) chosen.push_back(item);
    }
    return rt.make_iterator(std::move(chosen), kGenerator, out);
}

bool map_attribute(Runtime& rt, const ValList& items, const CallArgs& args, ValList& mapped) {
    BoundArgs bound;
    if (!bind_args(rt, "map", args, {"attribute", "default"}, 1, bound)) return false;
    for (const Val& item : items) {
        Val part;
        if (!rt.charge_steps(1) || !get_path(rt, item, *bound[0], part)) return false;
        if (part.is_undefined() && bound[1] != nullptr && !bound[1]->is_none()) part = *bound[1];
        mapped.push_back(std::move(part));
    }
    return true;
}

bool fill_list(Runtime& rt, ValList items, ValList& lists) {
    Val list;
    if (!rt.make_list(std::move(items), ListObject::Kind::list, list)) return false;
    lists.push_back(std::move(list));
    return true;
}

}  // namespace

bool filter_select(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return choose(rt, value, args, false, true, out);
}
bool filter_reject(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return choose(rt, value, args, false, false, out);
}
bool filter_selectattr(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return choose(rt, value, args, true, true, out);
}
bool filter_rejectattr(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return choose(rt, value, args, true, false, out);
}

bool filter_map(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    ValList items;
    ValList mapped;
    if (!is_true(value)) return rt.make_iterator({}, kGenerator, out);
    if (!iterate(rt, value, items)) return false;
    if (args.positional.empty()) {
        const bool has_attribute =
            std::any_of(args.named.begin(), args.named.end(), [](const auto& named) { return named.first == "attribute"; });
        if (!has_attribute) return rt.fail(ErrorKind::filter_argument, "map requires a filter argument");
        return map_attribute(rt, items, args, mapped) && rt.make_iterator(std::move(mapped), kGenerator, out);
    }
    std::string name;
    if (!to_text(rt, args.positional[0], name)) return false;
    CallArgs filter_args;
    filter_args.positional.assign(args.positional.begin() + 1, args.positional.end());
    filter_args.named = args.named;
    for (const Val& item : items) {
        Val result;
        if (!rt.apply_filter(name, item, filter_args, result)) return false;
        mapped.push_back(std::move(result));
    }
    return rt.make_iterator(std::move(mapped), kGenerator, out);
}

bool filter_batch(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    ValList items;
    int64_t size = 0;
    if (!bind_args(rt, "batch", args, {"linecount", "fill_with"}, 1, bound) || !to_integer(rt, *bound[0], size)) return false;
    if (!iterate(rt, value, items)) return false;
    ValList batches;
    ValList batch;
    for (const Val& item : items) {
        if (static_cast<int64_t>(batch.size()) == size && !fill_list(rt, std::exchange(batch, {}), batches)) return false;
        batch.push_back(item);
    }
    if (!batch.empty()) {
        const bool is_filled = bound[1] != nullptr && !bound[1]->is_none() && static_cast<int64_t>(batch.size()) < size;
        if (is_filled) {
            if (!rt.charge_bytes(static_cast<size_t>(std::min<int64_t>(size, INT32_MAX)) * sizeof(Val))) return false;
            batch.resize(static_cast<size_t>(size), *bound[1]);
        }
        if (!fill_list(rt, std::move(batch), batches)) return false;
    }
    return rt.make_iterator(std::move(batches), kGenerator, out);
}

bool filter_slice(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    ValList items;
    int64_t slices = 0;
    if (!bind_args(rt, "slice", args, {"slices", "fill_with"}, 1, bound) || !to_integer(rt, *bound[0], slices)) return false;
    if (!iterate(rt, value, items)) return false;
    if (slices == 0) return rt.fail(ErrorKind::zero_division, "integer division or modulo by zero");
    if (slices > 0 && !rt.charge_steps(static_cast<size_t>(slices))) return false;
    const size_t n = slices > 0 ? static_cast<size_t>(slices) : 0;
    ValList lists;
    size_t begin = 0;
    for (size_t i = 0; i < n; ++i) {
        const bool is_longer = i < items.size() % n;
        const size_t end = begin + items.size() / n + (is_longer ? 1 : 0);
        ValList part(items.begin() + static_cast<std::ptrdiff_t>(begin), items.begin() + static_cast<std::ptrdiff_t>(end));
        if (!is_longer && bound[1] != nullptr && !bound[1]->is_none()) part.push_back(*bound[1]);
        if (!fill_list(rt, std::move(part), lists)) return false;
        begin = end;
    }
    return rt.make_iterator(std::move(lists), kGenerator, out);
}

bool filter_first(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "first", args, {}, 0, bound)) return false;
    if (const std::string* text = value.as_string(); text != nullptr && !text->empty()) {
        return rt.make_text(text->substr(0, decode_at(*text, 0).bytes), out);
    }
    ValList items;
    if (!iterate(rt, value, items)) return false;
    out = items.empty() ? empty_sequence("No first item, sequence was empty.") : items.front();
    return true;
}

bool filter_last(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "last", args, {}, 0, bound)) return false;
    const ListObject* list = value.as_list();
    if (list != nullptr && !list->has_length())
        return rt.fail_type(fmt::format("'{}' object is not reversible", type_name(value)));
    if (!value.is_string() && !value.is_undefined() && list == nullptr && value.as_dict() == nullptr) {
        return rt.fail_type(fmt::format("'{}' object is not reversible", type_name(value)));
    }
    ValList items;
    if (!iterate(rt, value, items)) return false;
    out = items.empty() ? empty_sequence("No last item, sequence was empty.") : items.back();
    return true;
}

bool filter_items(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "items", args, {}, 0, bound)) return false;
    ValList pairs;
    if (const DictObject* dict = value.as_dict()) {
        for (const auto& [key, member] : dict->members) {
            Val pair;
            if (!rt.make_list({key, member}, ListObject::Kind::tuple, pair)) return false;
            pairs.push_back(std::move(pair));
        }
    } else if (!value.is_undefined()) {
        return rt.fail_type("Can only get item pairs from a mapping.");
    }
    return rt.make_iterator(std::move(pairs), kGenerator, out);
}

bool filter_join(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "join", args, {"d", "attribute"}, 0, bound)) return false;
    std::string separator;
    if (bound[0] != nullptr && !to_text(rt, *bound[0], separator)) return false;
    ValList items;
    if (!iterate(rt, value, items)) return false;
    std::string joined;
    for (size_t i = 0; i < items.size(); ++i) {
        Val item = items[i];
        if (!rt.charge_steps(1)) return false;
        if (bound[1] != nullptr && !bound[1]->is_none() && !get_path(rt, items[i], *bound[1], item)) return false;
        if (i > 0) joined += separator;
        if (!append_str(rt, joined, item)) return false;
        if (joined.size() > rt.limits().text_bytes) return rt.charge_bytes(joined.size());
    }
    return rt.make_text(std::move(joined), out);
}

bool filter_length(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    int64_t length = 0;
    if (!bind_args(rt, "length", args, {}, 0, bound) || !length_of(rt, value, length)) return false;
    out = length;
    return true;
}

bool filter_list(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    ValList items;
    if (!bind_args(rt, "list", args, {}, 0, bound) || !iterate(rt, value, items)) return false;
    return rt.make_list(std::move(items), ListObject::Kind::list, out);
}

bool filter_reverse(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "reverse", args, {}, 0, bound)) return false;
    if (value.is_string()) {
        SliceBounds backward;
        backward.step = Val(int64_t{-1});
        return get_slice(rt, value, backward, out);
    }
    const bool is_iterable = value.as_list() != nullptr || value.as_dict() != nullptr || value.is_undefined();
    if (!is_iterable) return rt.fail(ErrorKind::filter_argument, "argument must be iterable");
    ValList items;
    if (!iterate(rt, value, items)) return false;
    std::reverse(items.begin(), items.end());
    const ListObject* list = value.as_list();
    if (list != nullptr && !list->has_length()) return rt.make_list(std::move(items), ListObject::Kind::list, out);
    return rt.make_iterator(std::move(items), list != nullptr ? "list_reverseiterator" : "reversed", out);
}

}  // namespace espalier::text::jinja
