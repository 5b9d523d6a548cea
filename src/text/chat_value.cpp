// JSON to Value and back. Our own small parser because the values must keep what a general JSON library drops: all digits of
// an integer, and the difference between 1 and 1.0. It recurses, so depth is counted.
#include "text/chat_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "base/json.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace espalier::text {
namespace {

// Python refuses longer integers too (its int-to-text limit).
constexpr size_t kIntegerDigitsMax = 4300;
// Below this, finding a key by looking at all of them is faster than a hash table.
constexpr size_t kLinearKeysMax = 16;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

class JsonParser {
public:
    JsonParser(std::string_view text, std::string_view what) : text_(text), what_(what) {}

    Result<Value> parse_document() {
        if (!jinja::is_valid_utf8(text_)) return invalid_input(fmt::format("{}: not valid UTF-8", what_));
        TRY_ASSIGN(Value value, parse_value(0));
        skip_space();
        if (at_ != text_.size()) return fail("text after the end of the JSON value");
        return value;
    }

private:
    Error fail(std::string_view reason) const { return invalid_input(fmt::format("{}: byte {}: {}", what_, at_, reason)); }

    void skip_space() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
    }
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    bool take(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    Result<Value> parse_value(int depth) {
        if (depth > kJsonDepthMax) return fail(fmt::format("nested deeper than {} levels", kJsonDepthMax));
        skip_space();
        switch (peek()) {
            case '{': return parse_object(depth);
            case '[': return parse_array(depth);
            case '"': {
                TRY_ASSIGN(std::string text, parse_string());
                return Value(std::move(text));
            }
            default: break;
        }
        if (take("true")) return Value(true);
        if (take("false")) return Value(false);
        if (take("null")) return Value::none();
        if (take("NaN")) return Value(jinja::parse_float("nan"));
        if (take("Infinity")) return Value(jinja::parse_float("inf"));
        if (take("-Infinity")) return Value(jinja::parse_float("-inf"));
        return parse_number();
    }

    Result<Value> parse_number() {
        const size_t begin = at_;
        if (peek() == '-') ++at_;
        if (!is_digit(peek())) {
            at_ = begin;
            return fail(at_ == text_.size() ? "the text ends where a JSON value is expected" : "expected a JSON value");
        }
        if (peek() == '0') ++at_;
        else skip_digits();
        bool is_integer = true;
        if (peek() == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) {
            is_integer = false;
            ++at_;
            skip_digits();
        }
        if (peek() == 'e' || peek() == 'E') {
            const size_t mark = at_++;
            if (peek() == '+' || peek() == '-') ++at_;
            if (is_digit(peek())) {
                is_integer = false;
                skip_digits();
            } else {
                at_ = mark;
            }
        }
        const std::string_view spelled = text_.substr(begin, at_ - begin);
        if (!is_integer) return Value(jinja::parse_float(spelled));
        int64_t value = 0;
        if (std::from_chars(spelled.data(), spelled.data() + spelled.size(), value).ec == std::errc()) return Value(value);
        if (spelled.size() > kIntegerDigitsMax) return fail(fmt::format("integer of more than {} digits", kIntegerDigitsMax));
        return Value(BigInt{std::string(spelled)});
    }

    void skip_digits() {
        while (is_digit(peek())) ++at_;
    }

    Result<std::string> parse_string() {
        ++at_;
        std::string out;
        for (;;) {
            const size_t begin = at_;
            while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
                   static_cast<unsigned char>(text_[at_]) >= 0x20) {
                ++at_;
            }
            out += text_.substr(begin, at_ - begin);
            if (at_ == text_.size()) return fail("the text ends inside a string");
            const char c = text_[at_];
            if (c == '"') {
                ++at_;
                return out;
            }
            if (c != '\\') return fail("control character inside a string");
            ++at_;
            TRY(parse_escape(out));
        }
    }

    Status parse_escape(std::string& out) {
        static constexpr std::string_view kSpelled = "\"\\/bfnrt";
        static constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
        const char c = peek();
        const size_t simple = c == '\0' ? std::string_view::npos : kSpelled.find(c);
        if (simple != std::string_view::npos) {
            ++at_;
            out += kMeant[simple];
            return {};
        }
        uint32_t unit = 0;
        if (c != 'u' || !read_hex(at_ + 1, unit)) return fail("unknown escape in a string");
        at_ += 5;
        uint32_t low = 0;
        if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(at_, 2) == "\\u" && read_hex(at_ + 2, low) && low >= 0xDC00 &&
            low < 0xE000) {
            at_ += 6;
            unit = 0x10000 + ((unit - 0xD800) << 10U) + (low - 0xDC00);
        }
        jinja::append_utf8(out, unit);
        return {};
    }

    bool read_hex(size_t begin, uint32_t& unit) const {
        if (begin + 4 > text_.size()) return false;
        const char* end = text_.data() + begin + 4;
        return std::from_chars(text_.data() + begin, end, unit, 16).ptr == end;
    }

    Result<Value> parse_array(int depth) {
        ++at_;
        ValueList items;
        skip_space();
        if (take("]")) return Value(std::move(items));
        for (;;) {
            TRY_ASSIGN(Value item, parse_value(depth + 1));
            items.push_back(std::move(item));
            skip_space();
            if (take("]")) return Value(std::move(items));
            if (!take(",")) return fail("expected ',' or ']' in an array");
        }
    }

    Result<Value> parse_object(int depth) {
        ++at_;
        ValueDict members;
        std::unordered_map<std::string, size_t> index;
        skip_space();
        if (take("}")) return Value(std::move(members));
        for (;;) {
            skip_space();
            if (peek() != '"') return fail("expected a member name in double quotes");
            TRY_ASSIGN(std::string key, parse_string());
            skip_space();
            if (!take(":")) return fail("expected ':' after a member name");
            TRY_ASSIGN(Value value, parse_value(depth + 1));
            put(members, index, std::move(key), std::move(value));
            skip_space();
            if (take("}")) return Value(std::move(members));
            if (!take(",")) return fail("expected ',' or '}' in an object");
        }
    }

    static void put(ValueDict& members, std::unordered_map<std::string, size_t>& index, std::string key, Value value) {
        if (members.size() == kLinearKeysMax && index.empty()) {
            for (size_t i = 0; i < members.size(); ++i) index.emplace(members[i].first, i);
        }
        size_t place = members.size();
        if (members.size() < kLinearKeysMax) {
            const auto found =
                std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
            place = static_cast<size_t>(found - members.begin());
        } else {
            place = index.emplace(key, members.size()).first->second;
        }
        if (place < members.size()) members[place].second = std::move(value);
        else members.emplace_back(std::move(key), std::move(value));
    }

    std::string_view text_;
    std::string_view what_;
    size_t at_ = 0;
};

Status append_json(std::string& out, const Value& value, int depth) {
    if (depth > 2 * kJsonDepthMax) return invalid_input(fmt::format("value nested deeper than {} levels", 2 * kJsonDepthMax));
    if (value.is_undefined()) return invalid_input("Object of type Undefined is not JSON serializable");
    if (value.is_none()) {
        out += "null";
    } else if (const bool* boolean = value.as_bool()) {
        out += *boolean ? "true" : "false";
    } else if (const int64_t* integer = value.as_int()) {
        out += fmt::format("{}", *integer);
    } else if (const double* number = value.as_float()) {
        out += jinja::json_float(*number);
    } else if (const std::string* text = value.as_string()) {
        jinja::append_json_string(out, *text);
    } else if (const BigInt* big = value.as_big_int()) {
        out += big->digits;
    } else if (const ValueList* list = value.as_list()) {
        out += '[';
        for (size_t i = 0; i < list->size(); ++i) {
            if (i > 0) out += ", ";
            TRY(append_json(out, (*list)[i], depth + 1));
        }
        out += ']';
    } else if (const ValueDict* dict = value.as_dict()) {
        out += '{';
        for (size_t i = 0; i < dict->size(); ++i) {
            if (i > 0) out += ", ";
            jinja::append_json_string(out, (*dict)[i].first);
            out += ": ";
            TRY(append_json(out, (*dict)[i].second, depth + 1));
        }
        out += '}';
    }
    return {};
}

}  // namespace

const Value* Value::find(std::string_view key) const {
    const ValueDict* dict = as_dict();
    if (dict == nullptr) return nullptr;
    for (const auto& [name, value] : *dict) {
        if (name == key) return &value;
    }
    return nullptr;
}

Result<Value> parse_json_value(std::string_view json, std::string_view what) {
    return JsonParser(json, what).parse_document();
}

Result<std::string> to_json_text(const Value& value) {
    std::string out;
    TRY(append_json(out, value, 0));
    return out;
}

}  // namespace espalier::text
