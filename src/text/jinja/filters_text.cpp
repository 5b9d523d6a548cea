// Filters that make text.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/escape.h"
#include "text/jinja/filters.h"
#include "text/jinja/formatting.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::text::jinja {
namespace {

// A filter str -> str without arguments; text marked safe stays so.
template <class Function>
bool map_text(Runtime& rt, const char* name, const Val& value, const CallArgs& args, Function function, Val& out) {
    BoundArgs bound;
    std::string text;
    if (!bind_args(rt, name, args, {}, 0, bound) || !to_text(rt, value, text) || !rt.make_text(function(text), out)) return false;
    out = out.with_markup(value.is_markup());
    return true;
}

bool is_word(char32_t c) {
    return c == '_' || is_letter(c) || is_decimal_digit(c);
}

// Jinja's title: words begin after white space and after - ( { [ <.
std::string title_words(std::string_view text) {
    std::string out;
    std::string word;
    const auto flush = [&] {
        if (word.empty()) return;
        const size_t first = decode_at(word, 0).bytes;
        out += to_upper(std::string_view(word).substr(0, first));
        out += to_lower(std::string_view(word).substr(first));
        word.clear();
    };
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        const std::string_view character = text.substr(i, c.bytes);
        const bool is_separator = is_space(c.value) || std::string_view("-({[<").find(character[0]) != std::string_view::npos;
        i += c.bytes;
        if (!is_separator) {
            word += character;
            continue;
        }
        flush();
        out += character;
    }
    flush();
    return out;
}

void append_url_quoted(std::string& out, std::string_view text, bool is_query) {
    static constexpr std::string_view kSafe = "-._~";
    for (const char c : text) {
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                              kSafe.find(c) != std::string_view::npos || (c == '/' && !is_query);
        if (is_plain) out += c;
        else if (c == ' ' && is_query) out += '+';
        else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
}

bool read_json_style(Runtime& rt, const BoundArgs& bound, JsonStyle& style) {
    style.ascii = bound.flag(0, false);
    if (const Val* indent = bound[1]; indent != nullptr && !indent->is_none()) {
        constexpr int64_t kIndentMax = 1000;
        int64_t width = 0;
        style.has_indent = true;
        style.item_separator = ",";
        if (indent->is_string()) {
            style.indent = *indent->as_string();
        } else {
            if (!to_integer(rt, *indent, width)) return false;
            style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, kIndentMax)), ' ');
        }
    }
    if (const Val* separators = bound[2]; separators != nullptr && !separators->is_none()) {
        ValList parts;
        if (!iterate(rt, *separators, parts)) return false;
        if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
            return rt.fail_type("tojson: separators must be a pair of strings");
        }
        style.item_separator = *parts[0].as_string();
        style.key_separator = *parts[1].as_string();
    }
    style.sort_keys = bound.flag(3, false);
    return true;
}

}  // namespace

bool filter_capitalize(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return map_text(rt, "capitalize", value, args, capitalize, out);
}

bool filter_lower(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return map_text(rt, "lower", value, args, to_lower, out);
}

bool filter_upper(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return map_text(rt, "upper", value, args, to_upper, out);
}

bool filter_title(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    return map_text(rt, "title", value, args, title_words, out);
}

bool filter_center(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    CallArgs center;
    std::string text;
    if (!bind_args(rt, "center", args, {"width"}, 0, bound) || !to_text(rt, value, text)) return false;
    center.positional.push_back(bound[0] != nullptr ? *bound[0] : Val(int64_t{80}));
    return call_method(rt, Val(std::move(text)), "center", center, out);
}

bool filter_escape(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "escape", args, {}, 0, bound)) return false;
    if (value.is_markup()) {
        out = value;
        return true;
    }
    return filter_force_escape(rt, value, args, out);
}

bool filter_force_escape(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string text;
    std::string escaped;
    if (!bind_args(rt, "forceescape", args, {}, 0, bound) || !to_text(rt, value, text)) return false;
    append_escaped(escaped, text);
    if (!rt.make_text(std::move(escaped), out)) return false;
    out = out.with_markup(true);
    return true;
}

bool filter_safe(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    if (!filter_string(rt, value, args, out)) return false;
    out = out.with_markup(true);
    return true;
}

bool filter_string(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string text;
    if (!bind_args(rt, "string", args, {}, 0, bound)) return false;
    if (value.is_string()) {
        out = value;
        return true;
    }
    return to_text(rt, value, text) && rt.make_text(std::move(text), out);
}

bool filter_format(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    if (!args.positional.empty() && !args.named.empty()) {
        return rt.fail(ErrorKind::filter_argument, "can't handle positional and keyword arguments at the same time");
    }
    Val format;
    Val values;
    if (!filter_string(rt, value, {}, format)) return false;
    DictObject named;
    for (const auto& [name, argument] : args.named) named.put(Val(name), argument);
    if (args.named.empty() ? !rt.make_list(args.positional, ListObject::Kind::tuple, values)
                           : !rt.make_dict(std::move(named), values)) {
        return false;
    }
    return format_percent(rt, format, values, out);
}

bool filter_indent(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "indent", args, {"width", "first", "blank"}, 0, bound)) return false;
    if (value.is_undefined()) return rt.fail_undefined(value);
    if (!value.is_string())
        return rt.fail_type(fmt::format("unsupported operand type(s) for +=: '{}' and 'str'", type_name(value)));
    std::string indention(4, ' ');
    if (bound[0] != nullptr && bound[0]->is_string()) {
        indention = *bound[0]->as_string();
    } else if (bound[0] != nullptr) {
        int64_t width = 0;
        if (!to_integer(rt, *bound[0], width)) return false;
        width = std::max<int64_t>(width, 0);
        if (!rt.charge_bytes(static_cast<size_t>(width))) return false;
        indention = std::string(static_cast<size_t>(width), ' ');
    }
    const std::string text = *value.as_string() + "\n";
    if (!rt.charge_bytes(count_space_bytes(text) * sizeof(std::string_view))) return false;
    const auto lines = split_lines(text, LineEnds::drop);
    if (!rt.charge_bytes(text.size() + lines.size() * indention.size())) return false;
    std::string result = bound.flag(1, false) ? indention : "";
    for (size_t i = 0; i < lines.size(); ++i) {
        if (i > 0) result += '\n';
        if (i > 0 && (bound.flag(2, false) || !lines[i].empty())) result += indention;
        result += lines[i];
    }
    out = Val(std::move(result)).with_markup(value.is_markup());
    return true;
}

bool filter_replace(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "replace", args, {"old", "new", "count"}, 2, bound)) return false;
    CallArgs texts;
    std::string text;
    for (size_t i = 0; i < 2; ++i) {
        if (!to_text(rt, *bound[i], text)) return false;
        texts.positional.emplace_back(text);
    }
    if (bound[2] != nullptr && !bound[2]->is_none()) texts.positional.push_back(*bound[2]);
    return to_text(rt, value, text) && call_method(rt, Val(std::move(text)), "replace", texts, out);
}

bool filter_tojson(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    JsonStyle style;
    std::string text;
    if (!bind_args(rt, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, bound)) return false;
    return read_json_style(rt, bound, style) && append_json(rt, text, value, style) && rt.make_text(std::move(text), out);
}

bool filter_trim(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "trim", args, {"chars"}, 0, bound)) return false;
    Val text;
    if (!filter_string(rt, value, {}, text)) return false;
    CallArgs strip_args;
    if (bound[0] != nullptr) strip_args.positional.push_back(*bound[0]);
    return call_method(rt, text, "strip", strip_args, out);
}

bool filter_truncate(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    if (!bind_args(rt, "truncate", args, {"length", "killwords", "end", "leeway"}, 0, bound)) return false;
    std::string text;
    std::string ending = "...";
    int64_t length = 255;
    int64_t leeway = 5;
    if (!to_text(rt, value, text)) return false;
    if (bound[0] != nullptr && !to_integer(rt, *bound[0], length)) return false;
    if (bound[2] != nullptr && !to_text(rt, *bound[2], ending)) return false;
    if (bound[3] != nullptr && !bound[3]->is_none() && !to_integer(rt, *bound[3], leeway)) return false;
    const auto end_length = static_cast<int64_t>(count_code_points(ending));
    if (length < end_length || leeway < 0) {
        return rt.fail(ErrorKind::assertion_error,
                       fmt::format("expected length >= {} and leeway >= 0, got {} and {}", end_length, length, leeway));
    }
    if (static_cast<int64_t>(count_code_points(text)) - leeway <= length) return rt.make_text(std::move(text), out);
    text.resize(byte_offset(text, static_cast<size_t>(length - end_length)));
    if (!bound.flag(1, false)) text.resize(std::min(text.rfind(' '), text.size()));
    text += ending;
    return rt.make_text(std::move(text), out);
}

bool filter_urlencode(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string encoded;
    std::string text;
    if (!bind_args(rt, "urlencode", args, {}, 0, bound)) return false;
    if (const DictObject* dict = value.as_dict()) {
        for (const auto& [name, member] : dict->members) {
            if (!encoded.empty()) encoded += '&';
            if (!to_text(rt, name, text)) return false;
            append_url_quoted(encoded, text, true);
            encoded += '=';
            if (!to_text(rt, member, text)) return false;
            append_url_quoted(encoded, text, true);
        }
        return rt.make_text(std::move(encoded), out);
    }
    if (value.as_list() != nullptr) return rt.fail(ErrorKind::unsupported, "urlencode of a list is not supported");
    if (!to_text(rt, value, text)) return false;
    append_url_quoted(encoded, text, false);
    return rt.make_text(std::move(encoded), out);
}

bool filter_wordcount(Runtime& rt, const Val& value, const CallArgs& args, Val& out) {
    BoundArgs bound;
    std::string text;
    if (!bind_args(rt, "wordcount", args, {}, 0, bound) || !to_text(rt, value, text)) return false;
    int64_t words = 0;
    bool in_word = false;
    for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_at(text, i);
        i += c.bytes;
        if (is_word(c.value) && !in_word) ++words;
        in_word = is_word(c.value);
    }
    out = words;
    return true;
}

}  // namespace espalier::text::jinja
