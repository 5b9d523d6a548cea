// Filters that compare items: sort, unique, min, max, groupby, dictsort, sum.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

struct Keyed {
    ValList keys;
    Val item;
};

Val ignore_case(const Val& value) {
    return value.is_string() ? Val(to_lower(*value.as_string())) : value;
}

// The keys of an item by "a.b,c", an index, or the item itself.
bool make_keys(Runtime& rt, const Val& item, const Val* attribute, bool case_sensitive, ValList& keys) {
    if (!rt.charge_steps(weight_of(item))) return false;
    if (attribute == nullptr || attribute->is_none()) {
        keys.push_back(case_sensitive ? item : ignore_case(item));
        return true;
    }
    if (!attribute->is_string()) {
        Val key;
        if (!get_path(rt, item, *attribute, key)) return false;
        keys.push_back(case_sensitive ? key : ignore_case(key));
        return true;
    }
    std::string_view rest = *attribute->as_string();
    for (;;) {
        const size_t comma = rest.find(',');
        Val key;
        if (!get_path(rt, item, Val(rest.substr(0, comma)), key)) return false;
        keys.push_back(case_sensitive ? key : ignore_case(key));
        if (comma == std::string_view::npos) return true;
        rest.remove_prefix(comma + 1);
    }
}

// A stable sort whose comparison can fail: after the first failure it compares nothing more.
bool sort_keyed(Runtime& rt, std::vector<Keyed>& rows, bool is_reversed) {
    bool is_fine = true;
    const auto is_before = [&](const Keyed& a, const Keyed& b) {
        if (!is_fine) return false;
        for (size_t i = 0; i < a.keys.size(); ++i) {
            if (!rt.charge_steps(1) || !rt.charge_comparison(a.keys[i], b.keys[i])) {
                is_fine = false;
                return false;
            }
            if (equals(a.keys[i], b.keys[i])) continue;
            bool is_less = false;
            is_fine = is_reversed ? less(rt, b.keys[i], a.keys[i], is_less) : less(rt, a.keys[i], b.keys[i], is_less);
            return is_fine && is_less;
        }
        return false;
    };
    // A comparison of unordered values (NaN) may be inconsistent, which std::stable_sort survives: merging never leaves the
    // range.
    std::stable_sort(rows.begin(), rows.end(), is_before);
    return is_fine;
}

bool load_rows(Runtime& rt, const Val& value, const Val* attribute, bool case_sensitive, std::vector<Keyed>& rows) {
    ValList items;
    if (!iterate(rt, value, items)) return false;
    for (const Val& item : items) {
        Keyed row;
        row.item = item;
        if (!make_keys(rt, item, attribute, case_sensitive, row.keys)) return false;
        rows.push_back(std::move(row));
    }
    return true;
}

bool extreme(Runtime& rt, const char* name, const Val& value, const CallArgs& args, bool wants_max, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, name, args, {"case_sensitive", "attribute"}, 0, bound)) return false;
    std::vector<Keyed> rows;
    if (!load_rows(rt, value, bound[1], bound.flag(0, false), rows)) return false;
    if (rows.empty()) {
        out = Val::undefined({UndefinedReason::Kind::hint, "No aggregated item, sequence was empty.", {}});
        return true;
    }
    const Keyed* best = rows.data();
    for (const Keyed& row : rows) {
        bool is_better = false;
        if (&row == best) continue;
        if (!compare(rt, wants_max ? CompareOp::gt : CompareOp::lt, row.keys[0], best->keys[0], is_better)) return false;
        if (is_better) best = &row;
    }
    out = best->item;
    return true;
}

bool make_group(Runtime& rt, Val key, ValList items, Val& out) {
    Val list;
    if (!rt.make_list(std::move(items), ListObject::Kind::list, list)) return false;
    auto group = std::make_shared<ListObject>();
    group->kind = ListObject::Kind::tuple;
    group->type_name = "_GroupTuple";
    group->is_group = true;
    group->depth = std::max(depth_of(key), depth_of(list)) + 1;
    group->weight = weight_of(key) + weight_of(list) + 1;
    group->items = {std::move(key), std::move(list)};
    out = Val(std::shared_ptr<const ListObject>(std::move(group)));
    return true;
}

}  // namespace

bool filter_sort(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "sort", args, {"reverse", "case_sensitive", "attribute"}, 0, bound)) return false;
    std::vector<Keyed> rows;
    if (!load_rows(rt, value, bound[2], bound.flag(1, false), rows) || !sort_keyed(rt, rows, bound.flag(0, false))) return false;
    ValList sorted;
    for (Keyed& row : rows) sorted.push_back(std::move(row.item));
    return rt.make_list(std::move(sorted), ListObject::Kind::list, out);
}

bool filter_dictsort(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "dictsort", args, {"case_sensitive", "by", "reverse"}, 0, bound)) return false;
    std::string by = "key";
    if (bound[1] != nullptr && !to_text(rt, *bound[1], by)) return false;
    if (by != "key" && by != "value")
        return rt.fail(ErrorKind::filter_argument, "You can only sort by either \"key\" or \"value\"");
    if (value.is_undefined()) return rt.fail_undefined(value);
    const DictObject* dict = value.as_dict();
    if (dict == nullptr)
        return rt.fail(ErrorKind::attribute_error, fmt::format("'{}' object has no attribute 'items'", type_name(value)));
    std::vector<Keyed> rows;
    for (const auto& [key, member] : dict->members) {
        Keyed row;
        if (!rt.make_list({key, member}, ListObject::Kind::tuple, row.item)) return false;
        if (!make_keys(rt, by == "key" ? key : member, nullptr, bound.flag(0, false), row.keys)) return false;
        rows.push_back(std::move(row));
    }
    if (!sort_keyed(rt, rows, bound.flag(2, false))) return false;
    ValList sorted;
    for (Keyed& row : rows) sorted.push_back(std::move(row.item));
    return rt.make_list(std::move(sorted), ListObject::Kind::list, out);
}

bool filter_unique(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "unique", args, {"case_sensitive", "attribute"}, 0, bound)) return false;
    std::vector<Keyed> rows;
    if (!load_rows(rt, value, bound[1], bound.flag(0, false), rows)) return false;
    DictObject seen;
    ValList unique;
    for (Keyed& row : rows) {
        if (!is_hashable(row.keys[0])) return rt.fail_type(fmt::format("unhashable type: '{}'", type_name(row.keys[0])));
        if (seen.find(row.keys[0]) != nullptr) continue;
        seen.put(row.keys[0], Val(true));
        unique.push_back(std::move(row.item));
    }
    return rt.make_iterator(std::move(unique), "generator", out);
}

bool filter_min(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return extreme(rt, "min", value, args, false, out);
}
bool filter_max(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return extreme(rt, "max", value, args, true, out);
}

bool filter_groupby(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "groupby", args, {"attribute", "default", "case_sensitive"}, 1, bound)) return false;
    const bool case_sensitive = bound.flag(2, false);
    ValList items;
    if (!iterate(rt, value, items)) return false;
    std::vector<Keyed> rows;
    for (const Val& item : items) {
        Val key;
        if (!get_path(rt, item, *bound[0], key)) return false;
        if (key.is_undefined() && bound[1] != nullptr && !bound[1]->is_none()) key = *bound[1];
        Keyed row;
        if (!rt.make_list({key, item}, ListObject::Kind::tuple, row.item)) return false;  // the key as it was, and its item
        row.keys.push_back(case_sensitive ? key : ignore_case(key));
        rows.push_back(std::move(row));
    }
    if (!sort_keyed(rt, rows, false)) return false;
    ValList groups;
    for (size_t i = 0; i < rows.size();) {
        ValList members;
        size_t end = i;
        while (end < rows.size() && equals(rows[end].keys[0], rows[i].keys[0]))
            members.push_back(rows[end++].item.as_list()->items[1]);
        Val group;
        if (!make_group(rt, rows[i].item.as_list()->items[0], std::move(members), group)) return false;
        groups.push_back(std::move(group));
        i = end;
    }
    return rt.make_list(std::move(groups), ListObject::Kind::list, out);
}

bool filter_sum(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "sum", args, {"attribute", "start"}, 0, bound)) return false;
    ValList items;
    if (!iterate(rt, value, items)) return false;
    Val sum = bound[1] != nullptr ? *bound[1] : Val(int64_t{0});
    if (sum.is_string()) return rt.fail_type("sum() can't sum strings [use ''.join(seq) instead]");
    for (const Val& item : items) {
        Val part = item;
        if (!rt.charge_steps(1)) return false;
        if (bound[0] != nullptr && !bound[0]->is_none() && !get_path(rt, item, *bound[0], part)) return false;
        Val next;
        if (!arithmetic(rt, BinaryOp::add, sum, part, next)) return false;
        sum = std::move(next);
    }
    out = std::move(sum);
    return true;
}

}  // namespace espalier::text::jinja
