// Methods of strings, dictionaries, lists and cyclers. Those that would change a value are refused, as in the sandbox.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/formatting.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

using Method = bool (*)(Runtime& rt, const Val& self, const CallArgs& args, Val& out);
using Row = std::pair<std::string_view, Method>;

const std::string& text_of(const Val& self) {
    return *self.as_string();
}

bool string_arg(Runtime& rt, const Val& value, std::string_view& out) {
    if (!value.is_string()) return rt.fail_type(fmt::format("must be str, not {}", type_name(value)));
    out = *value.as_string();
    return true;
}

bool give_text(Runtime& rt, const Val& self, std::string text, Val& out) {
    if (!rt.make_text(std::move(text), out)) return false;
    out = out.with_markup(self.is_markup());
    return true;
}

bool give_list(Runtime& rt, const Val& self, const std::vector<std::string_view>& parts, Val& out) {
    ValList items;
    if (!rt.charge_bytes(text_of(self).size())) return false;
    for (const std::string_view part : parts) items.push_back(Val(part).with_markup(self.is_markup()));
    return rt.make_list(std::move(items), ListObject::Kind::list, out);
}

template <std::string (*kFunction)(std::string_view)>
bool map_case(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    return bind_args(rt, "str method", args, {}, 0, bound) && give_text(rt, self, kFunction(text_of(self)), out);
}

template <Side kSide>
bool strip_text(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "strip", args, {"chars"}, 0, bound)) return false;
    const bool has_set = bound[0] != nullptr && !bound[0]->is_none();
    std::string_view set;
    if (has_set && !bound[0]->is_string()) return rt.fail_type("strip arg must be None or str");
    if (has_set) set = *bound[0]->as_string();
    const std::string_view stripped = strip(text_of(self), has_set ? &set : nullptr, kSide);
    if (stripped.size() == text_of(self).size()) {
        out = self;
        return true;
    }
    return give_text(rt, self, std::string(stripped), out);
}

// Before a text is cut into at most n parts.
bool charge_parts(Runtime& rt, size_t n) {
    return rt.charge_steps(n) && rt.charge_bytes(n * sizeof(Val));
}

size_t count_occurrences(std::string_view text, std::string_view part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++n;
    return n;
}

bool limit_arg(Runtime& rt, const Val* value, int64_t& out) {
    return value == nullptr || to_integer(rt, *value, out);
}

std::vector<std::string_view> split_space(std::string_view text, int64_t limit) {
    std::vector<std::string_view> parts;
    for (text = strip(text, nullptr, Side::left); !text.empty(); text = strip(text, nullptr, Side::left)) {
        if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
            parts.push_back(text);
            break;
        }
        size_t end = 0;
        while (end < text.size()) {
            const CodePoint c = decode_at(text, end);
            if (is_space(c.value)) break;
            end += c.bytes;
        }
        parts.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    return parts;
}

std::vector<std::string_view> split_space_right(std::string_view text, int64_t limit) {
    std::vector<std::string_view> parts;
    for (text = strip(text, nullptr, Side::right); !text.empty(); text = strip(text, nullptr, Side::right)) {
        if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
            parts.push_back(text);
            break;
        }
        size_t begin = text.size();
        while (begin > 0) {
            const CodePoint c = decode_before(text, begin);
            if (is_space(c.value)) break;
            begin -= c.bytes;
        }
        parts.push_back(text.substr(begin));
        text = text.substr(0, begin);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t limit, bool from_right) {
    std::vector<std::string_view> parts;
    while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
        const size_t at = from_right ? text.rfind(separator) : text.find(separator);
        if (at == std::string_view::npos) break;
        if (from_right) {
            parts.push_back(text.substr(at + separator.size()));
            text = text.substr(0, at);
        } else {
            parts.push_back(text.substr(0, at));
            text.remove_prefix(at + separator.size());
        }
    }
    parts.push_back(text);
    if (from_right) std::reverse(parts.begin(), parts.end());
    return parts;
}

template <bool kFromRight>
bool split_text(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    int64_t limit = -1;
    if (!bind_args(rt, "split", args, {"sep", "maxsplit"}, 0, bound) || !limit_arg(rt, bound[1], limit)) return false;
    if (bound[0] == nullptr || bound[0]->is_none()) {
        if (!charge_parts(rt, count_space_bytes(text_of(self)) + 1)) return false;
        return give_list(rt, self, kFromRight ? split_space_right(text_of(self), limit) : split_space(text_of(self), limit), out);
    }
    if (!bound[0]->is_string()) return rt.fail_type(fmt::format("must be str or None, not {}", type_name(*bound[0])));
    const std::string_view separator = *bound[0]->as_string();
    if (separator.empty()) return rt.fail(ErrorKind::value_error, "empty separator");
    if (!charge_parts(rt, count_occurrences(text_of(self), separator) + 1)) return false;
    return give_list(rt, self, split_at(text_of(self), separator, limit, kFromRight), out);
}

bool split_lines_of(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "splitlines", args, {"keepends"}, 0, bound)) return false;
    if (!charge_parts(rt, count_space_bytes(text_of(self)) + 1)) return false;
    return give_list(rt, self, split_lines(text_of(self), bound.flag(0, false) ? LineEnds::keep : LineEnds::drop), out);
}

template <bool kFromRight>
bool partition(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string_view separator;
    if (!bind_args(rt, "partition", args, {"sep"}, 1, bound) || !string_arg(rt, *bound[0], separator)) return false;
    if (separator.empty()) return rt.fail(ErrorKind::value_error, "empty separator");
    const std::string_view text = text_of(self);
    const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
    ValList parts;
    if (at != std::string_view::npos) parts = {Val(text.substr(0, at)), Val(separator), Val(text.substr(at + separator.size()))};
    else if (kFromRight) parts = {Val(""), Val(""), self};
    else parts = {self, Val(""), Val("")};
    return rt.charge_bytes(text.size()) && rt.make_list(std::move(parts), ListObject::Kind::tuple, out);
}

// text[start:end] by code points, as find, count, startswith and endswith take it.
bool window(Runtime& rt, const Val& self, const Val* start, const Val* end, std::string_view& out, int64_t& offset,
            bool& is_valid) {
    out = text_of(self);
    offset = 0;
    is_valid = true;
    if (start == nullptr && end == nullptr) return true;
    const auto length = static_cast<int64_t>(count_code_points(out));
    int64_t from = 0;
    int64_t to = length;
    if (start != nullptr && !start->is_none() && !to_integer(rt, *start, from)) return false;
    if (end != nullptr && !end->is_none() && !to_integer(rt, *end, to)) return false;
    if (from < 0) from = std::max<int64_t>(from + length, 0);
    if (to < 0) to = std::max<int64_t>(to + length, 0);
    to = std::min(to, length);
    is_valid = from <= to && from <= length;
    if (!is_valid) return true;
    const size_t begin = byte_offset(out, static_cast<size_t>(from));
    out = out.substr(begin, byte_offset(out.substr(begin), static_cast<size_t>(to - from)));
    offset = from;
    return true;
}

template <bool kAtEnd>
bool starts_or_ends(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string_view text;
    int64_t offset = 0;
    bool is_valid = false;
    const char* name = kAtEnd ? "endswith" : "startswith";
    if (!bind_args(rt, name, args, {"prefix", "start", "end"}, 1, bound) ||
        !window(rt, self, bound[1], bound[2], text, offset, is_valid)) {
        return false;
    }
    ValList affixes = {*bound[0]};
    const ListObject* list = bound[0]->as_list();
    if (list != nullptr && list->kind == ListObject::Kind::tuple) affixes = list->items;
    bool is_found = false;
    for (const Val& affix : affixes) {
        if (!affix.is_string()) {
            return rt.fail_type(fmt::format("{} first arg must be str or a tuple of str, not {}", name, type_name(affix)));
        }
        is_found = is_found || (kAtEnd ? text.ends_with(*affix.as_string()) : text.starts_with(*affix.as_string()));
    }
    out = is_found && is_valid;
    return true;
}

enum class Missing { minus_one, error };
template <bool kFromRight, Missing kMissing>
bool find_text(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string_view text;
    std::string_view needle;
    int64_t offset = 0;
    bool is_valid = false;
    if (!bind_args(rt, "find", args, {"sub", "start", "end"}, 1, bound) || !string_arg(rt, *bound[0], needle) ||
        !window(rt, self, bound[1], bound[2], text, offset, is_valid)) {
        return false;
    }
    const size_t at = kFromRight ? text.rfind(needle) : text.find(needle);
    if (at == std::string_view::npos || !is_valid) {
        if (kMissing == Missing::error) return rt.fail(ErrorKind::value_error, "substring not found");
        out = int64_t{-1};
        return true;
    }
    out = offset + static_cast<int64_t>(count_code_points(text.substr(0, at)));
    return true;
}

bool count_text(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string_view text;
    std::string_view needle;
    int64_t offset = 0;
    bool is_valid = false;
    if (!bind_args(rt, "count", args, {"sub", "start", "end"}, 1, bound) || !string_arg(rt, *bound[0], needle) ||
        !window(rt, self, bound[1], bound[2], text, offset, is_valid)) {
        return false;
    }
    int64_t n = 0;
    if (needle.empty()) n = static_cast<int64_t>(count_code_points(text)) + 1;
    else n = static_cast<int64_t>(count_occurrences(text, needle));
    out = is_valid ? n : int64_t{0};
    return true;
}

bool replace_text(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string_view from;
    std::string_view to;
    int64_t limit = -1;
    if (!bind_args(rt, "replace", args, {"old", "new", "count"}, 2, bound) || !string_arg(rt, *bound[0], from) ||
        !string_arg(rt, *bound[1], to) || !limit_arg(rt, bound[2], limit)) {
        return false;
    }
    const std::string_view text = text_of(self);
    std::string result;
    size_t at = 0;
    int64_t n = 0;
    while (limit < 0 || n < limit) {
        const size_t found = text.find(from, at);
        if (found == std::string_view::npos) break;
        result += text.substr(at, found - at);
        result += to;
        at = found + from.size();
        ++n;
        if (from.empty()) {
            if (at == text.size()) break;
            const size_t bytes = decode_at(text, at).bytes;
            result += text.substr(at, bytes);
            at += bytes;
        }
        if (result.size() > rt.limits().text_bytes) return rt.charge_bytes(result.size());
    }
    result += text.substr(at);
    return give_text(rt, self, std::move(result), out);
}

bool join_text(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    ValList items;
    if (!bind_args(rt, "join", args, {"iterable"}, 1, bound) || !iterate(rt, *bound[0], items)) return false;
    std::string joined;
    for (size_t i = 0; i < items.size(); ++i) {
        if (!items[i].is_string()) {
            return rt.fail_type(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
        }
        if (i > 0) joined += text_of(self);
        joined += text_of(items[i]);
        if (joined.size() > rt.limits().text_bytes) return rt.charge_bytes(joined.size());
    }
    return rt.charge_steps(items.size()) && give_text(rt, self, std::move(joined), out);
}

template <Align kAlign>
bool justify(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    int64_t width = 0;
    std::string_view fill = " ";
    if (!bind_args(rt, "justify", args, {"width", "fillchar"}, 1, bound) || !to_integer(rt, *bound[0], width)) return false;
    if (bound[1] != nullptr && !string_arg(rt, *bound[1], fill)) return false;
    if (count_code_points(fill) != 1) return rt.fail_type("The fill character must be exactly one character long");
    const auto wanted = static_cast<size_t>(std::clamp<int64_t>(width, 0, INT64_MAX / 8));
    if (!rt.charge_bytes(wanted * fill.size())) return false;
    std::string text = text_of(self);
    const size_t length = count_code_points(text);
    // str.center puts the odd character to the left when the width is odd.
    if (kAlign == Align::center && wanted > length && (wanted - length) % 2 == 1 && wanted % 2 == 1)
        text = std::string(fill) + text;
    return give_text(rt, self, pad(text, wanted, kAlign, fill), out);
}

bool zero_fill(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    int64_t width = 0;
    if (!bind_args(rt, "zfill", args, {"width"}, 1, bound) || !to_integer(rt, *bound[0], width)) return false;
    const auto wanted = static_cast<size_t>(std::max<int64_t>(width, 0));
    if (!rt.charge_bytes(wanted)) return false;
    std::string text = text_of(self);
    const size_t length = count_code_points(text);
    const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    if (length < wanted) text.insert(sign, wanted - length, '0');
    return give_text(rt, self, std::move(text), out);
}

template <bool kSuffix>
bool remove_affix(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string_view affix;
    if (!bind_args(rt, "removeprefix", args, {"prefix"}, 1, bound) || !string_arg(rt, *bound[0], affix)) return false;
    std::string_view text = text_of(self);
    if (kSuffix && text.ends_with(affix)) text.remove_suffix(affix.size());
    if (!kSuffix && text.starts_with(affix)) text.remove_prefix(affix.size());
    return give_text(rt, self, std::string(text), out);
}

bool is_ascii_code(char32_t c) {
    return c < 0x80;
}
bool is_alphanumeric(char32_t c) {
    return is_letter(c) || is_decimal_digit(c);
}

enum class Empty { is_false, is_true };
template <bool (*kPredicate)(char32_t), Empty kEmpty>
bool all_are(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "str method", args, {}, 0, bound)) return false;
    const std::string_view text = text_of(self);
    bool is_all = kEmpty == Empty::is_true || !text.empty();
    for (size_t i = 0; is_all && i < text.size();) {
        const CodePoint c = decode_at(text, i);
        is_all = kPredicate(c.value);
        i += c.bytes;
    }
    out = is_all;
    return true;
}

template <bool kUpper>
bool is_cased(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    bool is_so = false;
    if (!bind_args(rt, "str method", args, {}, 0, bound) || !rt.apply_test(kUpper ? "upper" : "lower", self, {}, is_so))
        return false;
    out = is_so;
    return true;
}

bool format_text(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    return format_braces(rt, text_of(self), args, out);
}

constexpr Row kStringMethods[] = {
    {"capitalize", map_case<capitalize>},
    {"casefold", map_case<to_lower>},
    {"center", justify<Align::center>},
    {"count", count_text},
    {"endswith", starts_or_ends<true>},
    {"find", find_text<false, Missing::minus_one>},
    {"format", format_text},
    {"index", find_text<false, Missing::error>},
    {"isalnum", all_are<is_alphanumeric, Empty::is_false>},
    {"isalpha", all_are<is_letter, Empty::is_false>},
    {"isascii", all_are<is_ascii_code, Empty::is_true>},
    {"isdecimal", all_are<is_decimal_digit, Empty::is_false>},
    {"isdigit", all_are<is_decimal_digit, Empty::is_false>},
    {"islower", is_cased<false>},
    {"isnumeric", all_are<is_decimal_digit, Empty::is_false>},
    {"isprintable", all_are<is_printable, Empty::is_true>},
    {"isspace", all_are<is_space, Empty::is_false>},
    {"isupper", is_cased<true>},
    {"join", join_text},
    {"ljust", justify<Align::left>},
    {"lower", map_case<to_lower>},
    {"lstrip", strip_text<Side::left>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_text},
    {"rfind", find_text<true, Missing::minus_one>},
    {"rindex", find_text<true, Missing::error>},
    {"rjust", justify<Align::right>},
    {"rpartition", partition<true>},
    {"rsplit", split_text<true>},
    {"rstrip", strip_text<Side::right>},
    {"split", split_text<false>},
    {"splitlines", split_lines_of},
    {"startswith", starts_or_ends<false>},
    {"strip", strip_text<Side::both>},
    {"swapcase", map_case<swap_case>},
    {"title", map_case<to_title>},
    {"upper", map_case<to_upper>},
    {"zfill", zero_fill},
};

bool dict_get(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "get", args, {"key", "default"}, 1, bound)) return false;
    if (!is_hashable(*bound[0])) return rt.fail_type(fmt::format("unhashable type: '{}'", type_name(*bound[0])));
    const Val* found = self.as_dict()->find(*bound[0]);
    if (found != nullptr) out = *found;
    else out = bound[1] != nullptr ? *bound[1] : Val::none();
    return true;
}

enum class Part { keys, values, items };
template <Part kPart>
bool dict_view(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "dict method", args, {}, 0, bound)) return false;
    ValList items;
    for (const auto& [key, value] : self.as_dict()->members) {
        Val item = kPart == Part::keys ? key : value;
        if (kPart == Part::items && !rt.make_list({key, value}, ListObject::Kind::tuple, item)) return false;
        items.push_back(std::move(item));
    }
    static constexpr const char* kNames[] = {"dict_keys", "dict_values", "dict_items"};
    return rt.make_view(std::move(items), kNames[static_cast<int>(kPart)], out);
}

bool copy_self(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    out = self;
    return bind_args(rt, "copy", args, {}, 0, bound);
}

constexpr Row kDictMethods[] = {{"copy", copy_self},
                                {"get", dict_get},
                                {"items", dict_view<Part::items>},
                                {"keys", dict_view<Part::keys>},
                                {"values", dict_view<Part::values>}};
constexpr std::string_view kDictForbidden[] = {"clear", "pop", "popitem", "setdefault", "update"};

bool list_count(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "count", args, {"value"}, 1, bound)) return false;
    int64_t n = 0;
    for (const Val& item : self.as_list()->items) {
        if (!rt.charge_comparison(item, *bound[0])) return false;
        if (equals(item, *bound[0])) ++n;
    }
    out = n;
    return true;
}

bool list_index(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "index", args, {"value"}, 1, bound)) return false;
    const ValList& items = self.as_list()->items;
    for (size_t i = 0; i < items.size(); ++i) {
        if (!rt.charge_comparison(items[i], *bound[0])) return false;
        if (equals(items[i], *bound[0])) {
            out = Val::count(i);
            return true;
        }
    }
    std::string shown;
    if (!append_repr(rt, shown, *bound[0])) return false;
    return rt.fail(ErrorKind::value_error, shown + " is not in list");
}

constexpr Row kListMethods[] = {{"copy", copy_self}, {"count", list_count}, {"index", list_index}};
constexpr std::string_view kListForbidden[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};

bool cycler_next(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    auto* cycler = static_cast<CyclerObject*>(self.as_object());
    out = cycler->items[cycler->position];
    cycler->position = (cycler->position + 1) % cycler->items.size();
    return bind_args(rt, "next", args, {}, 0, bound);
}

bool cycler_reset(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    static_cast<CyclerObject*>(self.as_object())->position = 0;
    out = Val::none();
    return bind_args(rt, "reset", args, {}, 0, bound);
}

constexpr Row kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

bool float_is_integer(Runtime& rt, const Val& self, const CallArgs& args, Val& out) {
    BoundArgs bound;
    const double value = *self.as_float();
    out = std::isfinite(value) && std::trunc(value) == value;
    return bind_args(rt, "is_integer", args, {}, 0, bound);
}

constexpr Row kFloatMethods[] = {{"is_integer", float_is_integer}};

struct Table {
    const Row* rows = nullptr;
    size_t n_rows = 0;
    const std::string_view* forbidden = nullptr;
    size_t n_forbidden = 0;
};

Table table_for(const Val& self) {
    const ListObject* list = self.as_list();
    const Object* object = self.as_object();
    if (self.is_string()) return {kStringMethods, std::size(kStringMethods), nullptr, 0};
    if (self.as_dict() != nullptr) return {kDictMethods, std::size(kDictMethods), kDictForbidden, std::size(kDictForbidden)};
    if (list != nullptr && list->kind == ListObject::Kind::list) {
        return {kListMethods, std::size(kListMethods), kListForbidden, std::size(kListForbidden)};
    }
    if (list != nullptr && list->has_elements()) return {kListMethods + 1, std::size(kListMethods) - 1, nullptr, 0};
    if (object != nullptr && object->kind == Object::Kind::cycler) return {kCyclerMethods, std::size(kCyclerMethods), nullptr, 0};
    if (self.as_float() != nullptr) return {kFloatMethods, std::size(kFloatMethods), nullptr, 0};
    return {};
}

Method find_method(const Table& table, std::string_view name) {
    const Row* end = table.rows + table.n_rows;
    const Row* found = std::find_if(table.rows, end, [&](const Row& row) { return row.first == name; });
    return found != end ? found->second : nullptr;
}

}  // namespace

MethodKind method_kind(const Val& self, std::string_view name) {
    const Table table = table_for(self);
    if (find_method(table, name) != nullptr) return MethodKind::callable;
    const bool is_forbidden =
        std::find(table.forbidden, table.forbidden + table.n_forbidden, name) != table.forbidden + table.n_forbidden;
    return is_forbidden ? MethodKind::forbidden : MethodKind::none;
}

bool call_method(Runtime& rt, const Val& self, std::string_view name, const CallArgs& args, Val& out) {
    const Method method = find_method(table_for(self), name);
    if (method == nullptr) return rt.fail_type(fmt::format("'{}' object has no method '{}'", type_name(self), name));
    if (self.is_string()) {
        // Searching compares up to the whole needle at every place.
        size_t longest = 0;
        for (const Val& argument : args.positional)
            longest = std::max(longest, argument.is_string() ? text_of(argument).size() : 0);
        const size_t size = text_of(self).size();
        if (!rt.charge_steps(size / 256 + size / 64 * longest / 64)) return false;
    }
    return method(rt, self, args, out);
}

}  // namespace espalier::text::jinja
