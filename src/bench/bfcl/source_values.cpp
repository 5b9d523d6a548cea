#include "bench/bfcl/source_values.h"

#include <algorithm>
#include <vector>

#include "bench/bfcl/pattern.h"
#include "text/jinja/unicode.h"

namespace espalier::bench {
namespace {

using text::Value;
using text::ValueDict;
using text::ValueList;

constexpr std::string_view kQuotes = "'\"";

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
}

std::vector<std::string> split_stripped(std::string_view text) {
    std::vector<std::string> parts;
    while (true) {
        const size_t comma = text.find(',');
        parts.emplace_back(py_strip(text.substr(0, comma)));
        if (comma == std::string_view::npos) return parts;
        text = text.substr(comma + 1);
    }
}

bool is_quoted(std::string_view text, char quote) {
    return text.starts_with(quote) && text.ends_with(quote);
}

// int(text), which the pattern before has made sure of but for lengths that Python refuses.
Result<Value> as_integer(std::string_view text) {
    std::optional<Value> value = py_int(text);
    if (!value) return py_raise("ValueError");
    return *std::move(value);
}

std::string_view drop_suffix(std::string_view text, std::string_view letters) {
    const bool has_line_feed = text.ends_with('\n');
    std::string_view body = has_line_feed ? text.substr(0, text.size() - 1) : text;
    if (!body.empty() && letters.find(body.back()) != std::string_view::npos) body.remove_suffix(1);
    return body;
}

Value number_or_text(std::string_view text) {
    if (const auto integer = py_int(text)) return *integer;
    if (const auto real = py_float(text)) return Value(*real);
    return Value(text);
}

void set_key(ValueDict& dict, std::string key, Value value) {
    const auto entry = std::ranges::find(dict, key, [](const auto& member) { return member.first; });
    if (entry != dict.end()) entry->second = std::move(value);
    else dict.emplace_back(std::move(key), std::move(value));
}

const Pattern& java_float_pattern() {
    static const Pattern pattern(R"(^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?[fF]$)");
    return pattern;
}
const Pattern& java_long_pattern() {
    static const Pattern pattern(R"(^-?[0-9]+[lL]$)");
    return pattern;
}

// A value whose type is not declared.
Result<Value> java_free_value(const std::string& source) {
    if (source == "true") return Value(true);
    if (source == "false") return Value(false);
    if (is_quoted(source, '"')) return Value(py_inner(source));
    if (java_long_pattern().match_start(source)) return as_integer(drop_suffix(source, "lL"));
    if (java_float_pattern().match_start(source)) return Value(py_float(drop_suffix(source, "fF")).value_or(0));
    return number_or_text(source);
}

Result<Value> java_item(const std::string& source, const std::optional<std::string>& item_type) {
    return item_type ? java_value(source, *item_type, std::nullopt) : java_free_value(source);
}

Result<Value> java_list_item(const std::string& source, const std::optional<std::string>& item_type) {
    if (item_type && is_one_of(*item_type, {"char", "String"})) return Value(py_inner(source));
    return java_item(source, item_type);
}

Result<Value> java_array_list(const std::string& source, const std::optional<std::string>& item_type) {
    static const Pattern as_list(R"(new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\))");
    static const Pattern with_adds(R"(new\s+ArrayList<\w*>\(\)\s*\{\{\s*(.+?)\s*\}\})", Pattern::Dot::any);
    static const Pattern add(R"(add\((.+?)\))");
    static const Pattern empty(R"(new\s+ArrayList<\w*>\(\))");
    ValueList items;
    if (const auto match = as_list.search(source)) {
        for (const std::string& part : split_stripped(match->group(1))) {
            TRY_ASSIGN(Value item, java_list_item(part, item_type));
            items.push_back(std::move(item));
        }
        return Value(std::move(items));
    }
    if (const auto match = with_adds.search(source)) {
        for (const Match& call : add.find_all(match->group(1))) {
            TRY_ASSIGN(Value item, java_list_item(std::string(py_strip(call.group(1))), item_type));
            items.push_back(std::move(item));
        }
        return Value(std::move(items));
    }
    if (empty.search(source)) return Value(std::move(items));
    return Value(source);
}

Result<Value> java_array(const std::string& source, const std::optional<std::string>& item_type) {
    static const Pattern array(R"(new\s+\w+\[\]\s*\{(.*?)\})");
    const auto match = array.search(source);
    if (!match) return Value(source);
    ValueList items;
    for (const std::string& part : split_stripped(match->group(1))) {
        if (part.empty()) continue;
        TRY_ASSIGN(Value item, java_item(part, item_type));
        items.push_back(std::move(item));
    }
    return Value(std::move(items));
}

Result<Value> java_hash_map(const std::string& source) {
    static const Pattern with_puts(R"(new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*(.*?)\s*\}?\s*\})", Pattern::Dot::any);
    static const Pattern put(R"re(put\("(.*?)",\s*(.*?)\))re");
    static const Pattern empty(R"(new\s+HashMap<.*?>\s*\(\))");
    ValueDict members;
    if (const auto match = with_puts.search(source)) {
        for (const Match& call : put.find_all(match->group(1))) {
            TRY_ASSIGN(Value value, java_free_value(std::string(py_strip(call.group(2)))));
            set_key(members, std::string(call.group(1)), std::move(value));
        }
        return Value(std::move(members));
    }
    if (empty.search(source)) return Value(std::move(members));
    return Value(source);
}

Value js_free_value(std::string_view source) {
    const std::string_view text = py_strip(source);
    if (text == "true") return Value(true);
    if (text == "false") return Value(false);
    if (is_quoted(text, '"') || is_quoted(text, '\'')) return Value(py_inner(text));
    return number_or_text(text);
}

Result<Value> js_items(std::string_view elements, const std::optional<std::string>& item_type) {
    ValueList items;
    const std::string_view stripped = py_strip(elements);
    if (stripped.empty()) return Value(std::move(items));
    for (const std::string& part : split_stripped(stripped)) {
        if (!item_type) {
            items.push_back(js_free_value(part));
            continue;
        }
        TRY_ASSIGN(Value item, js_value(part, *item_type, std::nullopt));
        items.push_back(std::move(item));
    }
    return Value(std::move(items));
}

Value js_array(std::string_view source, const std::optional<std::string>& item_type) {
    static const Pattern nested(R"(\[\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\]|\bnew\s+Array\(\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\))");
    static const Pattern inner(R"(\[(.*?)\])");
    static const Pattern flat(R"(\[(.*?)\]|\bnew\s+Array\((.*?)\))");
    const std::string_view code = py_strip(source);
    if (const auto match = nested.match_start(code)) {
        ValueList rows;
        for (const Match& part : inner.find_all(match->group(0))) {
            std::string_view elements = py_strip(part.group(1));
            if (rows.empty() && elements.starts_with('[')) elements.remove_prefix(1);
            ValueList row;
            for (const std::string& element : split_stripped(elements)) row.push_back(js_free_value(element));
            rows.push_back(Value(std::move(row)));
        }
        return Value(std::move(rows));
    }
    const auto match = flat.match_start(code);
    if (!match) return Value(code);
    const bool is_literal = match->groups.size() > 1 && match->groups[1];
    Result<Value> items = js_items(match->group(is_literal ? 1 : 2), item_type);
    return items ? *std::move(items) : Value(code);
}

Value js_dict(std::string_view source) {
    static const Pattern braces(R"(\{(.*?)\})");
    static const Pattern pair(R"(([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$))");
    const std::string_view code = py_strip(source);
    if (code == "{}") return Value(ValueDict());
    const auto match = braces.match_start(code);
    if (!match) return Value(code);
    ValueDict members;
    for (const Match& entry : pair.find_all(match->group(1))) {
        const std::string_view key = text::jinja::strip(py_strip(entry.group(1)), &kQuotes, text::jinja::Side::both);
        const std::string_view value = py_strip(entry.group(2));
        Value member;
        if (value.starts_with('[') && value.ends_with(']')) member = js_array(value, std::nullopt);
        else if (value.starts_with('{') && value.ends_with('}')) member = js_dict(value);
        else member = js_free_value(text::jinja::strip(value, &kQuotes, text::jinja::Side::both));
        set_key(members, std::string(key), std::move(member));
    }
    return Value(std::move(members));
}

}  // namespace

Result<Value> java_value(const std::string& source, std::string_view type, const std::optional<std::string>& item_type) {
    static const Pattern integer(R"(^-?[0-9]+$)");
    static const Pattern real(R"(^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$)");
    if (is_one_of(type, {"byte", "short", "integer"})) return integer.match_start(source) ? as_integer(source) : Value(source);
    if (type == "long") return java_long_pattern().match_start(source) ? as_integer(drop_suffix(source, "lL")) : Value(source);
    if (type == "float") {
        if (!java_float_pattern().match_start(source)) return Value(source);
        return Value(py_float(drop_suffix(source, "fF")).value_or(0));
    }
    if (type == "double") return real.match_start(source) ? Value(py_float(source).value_or(0)) : Value(source);
    if (type == "boolean") return is_one_of(source, {"true", "false"}) ? Value(source == "true") : Value(source);
    if (is_one_of(type, {"String", "any", "char"})) return Value(source);
    if (type == "ArrayList") return java_array_list(source, item_type);
    if (type == "Array") return java_array(source, item_type);
    if (type == "HashMap") return java_hash_map(source);
    return py_raise(is_one_of(type, {"Set", "Hashtable", "Queue", "Stack"}) ? "NotImplementedError" : "ValueError");
}

Result<Value> js_value(const std::string& source, std::string_view type, const std::optional<std::string>& item_type) {
    static const Pattern integer(R"(^-?[0-9]+$)");
    static const Pattern real(R"(^-?[0-9]+(\.[0-9]+)?$)");
    static const Pattern big(R"(^-?[0-9]+n$)");
    if (type == "String") return is_quoted(source, '"') || is_quoted(source, '\'') ? Value(py_inner(source)) : Value(source);
    if (type == "integer") return integer.match_start(source) ? as_integer(source) : Value(source);
    if (type == "float") return real.match_start(source) ? Value(py_float(source).value_or(0)) : Value(source);
    if (type == "Bigint") {
        if (!big.match_start(source)) return Value(source);
        return as_integer(std::string_view(source).substr(0, source.size() - 1));
    }
    if (type == "Boolean") return is_one_of(source, {"true", "false"}) ? Value(source == "true") : Value(source);
    if (type == "any") return Value(source);
    if (type == "array") return js_array(source, item_type);
    if (type == "dict") return js_dict(source);
    return py_raise("ValueError");
}

}  // namespace espalier::bench
