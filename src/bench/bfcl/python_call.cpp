// A reader of Python literals: strings with prefixes and escapes, numbers, None, True, False, lists, tuples, dictionaries, sets,
// signs. Whatever else stands for a value is kept as source text with Python's usual spacing; the reference prints it from a
// syntax tree, which for names, attributes and calls gives the same.
#include "bench/bfcl/python_call.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/bfcl/pattern.h"
#include "bench/bfcl/python.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace espalier::bench {
namespace {

using text::Value;
using text::ValueDict;
using text::ValueList;

constexpr int kNestingMax = 90;  // Python's parser refuses deeper brackets at 200; nobody writes a reply with 90
constexpr std::string_view kSkippedNames[] = {
    "print", "return",    "if",  "for", "while",  "def",   "class",   "import", "from", "with",  "assert", "raise",
    "try",   "except",    "len", "str", "int",    "float", "list",    "dict",   "set",  "tuple", "type",   "isinstance",
    "range", "enumerate", "zip", "map", "filter", "Note",  "Example", "Here",   "This", "The",   "For"};

enum class TokenKind { name, number, string, symbol };

struct Token {
    TokenKind kind = TokenKind::symbol;
    std::string text;           // source
    Value literal;              // of numbers and strings
    bool has_no_json = false;   // b"…", 5j: a literal that JSON cannot hold
    bool is_formatted = false;  // f"…"
};

bool is_name_start(unsigned char c) {
    return std::isalpha(c) != 0 || c == '_' || c >= 0x80;
}
bool is_name_part(unsigned char c) {
    return is_name_start(c) || std::isdigit(c) != 0;
}

// Splits source into tokens; nullopt = Python would refuse it.
class Lexer {
public:
    explicit Lexer(std::string_view source) : rest_(source) {}

    std::optional<std::vector<Token>> run() {
        std::vector<Token> tokens;
        while (true) {
            skip_space();
            if (rest_.empty()) return tokens;
            std::optional<Token> token = next();
            if (!token) return std::nullopt;
            tokens.push_back(*std::move(token));
        }
    }

private:
    void skip_space() {
        while (!rest_.empty()) {
            const char c = rest_.front();
            if (c == '#') rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
            else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f') rest_.remove_prefix(1);
            else return;
        }
    }

    std::optional<Token> next() {
        const auto c = static_cast<unsigned char>(rest_.front());
        if (is_name_start(c)) {
            size_t length = 1;
            while (length < rest_.size() && is_name_part(static_cast<unsigned char>(rest_[length]))) ++length;
            const bool is_prefix = length <= 2 && length < rest_.size() && (rest_[length] == '"' || rest_[length] == '\'');
            if (is_prefix) return string(length);
            Token token{TokenKind::name, std::string(rest_.substr(0, length)), Value(), false, false};
            rest_.remove_prefix(length);
            return token;
        }
        if (c == '"' || c == '\'') return string(0);
        if (std::isdigit(c) != 0 || (c == '.' && rest_.size() > 1 && std::isdigit(static_cast<unsigned char>(rest_[1])) != 0))
            return number();
        return symbol();
    }

    std::optional<Token> symbol() {
        for (const std::string_view text : {"**", "//", "==", "!=", "<=", ">=", "<<", ">>", ":="}) {
            if (rest_.starts_with(text)) return take_symbol(text.size());
        }
        if (std::string_view("()[]{},:=.+-*/%@&|^~<>").find(rest_.front()) == std::string_view::npos) return std::nullopt;
        return take_symbol(1);
    }

    Token take_symbol(size_t length) {
        Token token{TokenKind::symbol, std::string(rest_.substr(0, length)), Value(), false, false};
        rest_.remove_prefix(length);
        return token;
    }

    std::optional<Token> number() {
        static const Pattern based(R"(0[xX](_?[0-9a-fA-F])+|0[oO](_?[0-7])+|0[bB](_?[01])+)");
        static const Pattern decimal(R"((?:[0-9](?:_?[0-9])*)?(?:\.(?:[0-9](?:_?[0-9])*)?)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?)");
        auto match = based.match_start(rest_);
        const bool is_based = match.has_value();
        if (!match) match = decimal.match_start(rest_);
        if (!match || match->end == 0) return std::nullopt;
        Token token{TokenKind::number, std::string(match->group(0)), Value(), false, false};
        rest_.remove_prefix(match->end);
        if (!is_based && (rest_.starts_with('j') || rest_.starts_with('J'))) {
            token.has_no_json = true;
            token.text += rest_.front();
            rest_.remove_prefix(1);
        }
        if (!rest_.empty() && is_name_part(static_cast<unsigned char>(rest_.front()))) return std::nullopt;  // 12abc
        if (is_based) return based_value(std::move(token));
        if (token.has_no_json) return token;
        const bool is_real = token.text.find_first_of(".eE") != std::string::npos;
        if (is_real) token.literal = Value(py_float(token.text).value_or(0));
        else token.literal = py_int(token.text).value_or(Value(0));
        const bool has_leading_zero = token.text.size() > 1 && token.text.front() == '0' && !is_real;
        if (has_leading_zero && token.text.find_first_not_of("0_") != std::string::npos) return std::nullopt;  // 007
        return token;
    }

    static std::optional<Token> based_value(Token token) {
        std::string digits;
        std::copy_if(token.text.begin() + 2, token.text.end(), std::back_inserter(digits), [](char c) { return c != '_'; });
        const char letter = static_cast<char>(token.text[1] | 0x20);
        const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
        if (digits.size() > 15) return std::nullopt;
        token.literal = Value(static_cast<int64_t>(std::strtoull(digits.c_str(), nullptr, base)));
        return token;
    }

    std::optional<Token> string(size_t prefix_length) {
        Token token{TokenKind::string, "", Value(), false, false};
        bool is_raw = false;
        for (const char c : rest_.substr(0, prefix_length)) {
            const char letter = static_cast<char>(c | 0x20);
            if (letter == 'r') is_raw = true;
            else if (letter == 'b') token.has_no_json = true;
            else if (letter == 'f') token.is_formatted = true;
            else if (letter != 'u' || prefix_length != 1) return std::nullopt;
        }
        std::string_view body = rest_.substr(prefix_length);
        const std::string quote(body.starts_with("\"\"\"") || body.starts_with("'''") ? body.substr(0, 3) : body.substr(0, 1));
        size_t end = quote.size();
        while (end < body.size() && !body.substr(end).starts_with(quote)) {
            if (body[end] == '\n' && quote.size() == 1) return std::nullopt;
            end += body[end] == '\\' ? 2 : 1;
        }
        if (end >= body.size()) return std::nullopt;
        const std::string_view content = body.substr(quote.size(), end - quote.size());
        token.text = rest_.substr(0, prefix_length + end + quote.size());
        rest_.remove_prefix(token.text.size());
        if (is_raw) {
            token.literal = Value(content);
            return token;
        }
        std::optional<std::string> unescaped = unescape(content);
        if (!unescaped) return std::nullopt;
        token.literal = Value(*std::move(unescaped));
        return token;
    }

    static std::optional<std::string> unescape(std::string_view content) {
        std::string out;
        for (size_t i = 0; i < content.size(); ++i) {
            if (content[i] != '\\') {
                out += content[i];
                continue;
            }
            if (++i == content.size()) return std::nullopt;
            static constexpr std::string_view kLetters = "\\'\"abfnrtv";
            static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
            const char c = content[i];
            if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
                out += kValues[at];
            } else if (c == '\n') {
                continue;
            } else if (c == 'x' || c == 'u' || c == 'U') {
                const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
                const std::string digits(content.substr(i + 1, n_digits));
                const bool is_hex = digits.size() == n_digits &&
                                    std::ranges::all_of(digits, [](unsigned char d) { return std::isxdigit(d) != 0; });
                if (!is_hex) return std::nullopt;
                const unsigned long code = std::strtoul(digits.c_str(), nullptr, 16);
                if (code > 0x10FFFF) return std::nullopt;
                text::jinja::append_utf8(out, code >= 0xD800 && code <= 0xDFFF ? 0xFFFD : static_cast<char32_t>(code));
                i += n_digits;
            } else if (c >= '0' && c <= '7') {
                unsigned code = 0;
                size_t n_digits = 0;
                while (n_digits < 3 && i + n_digits < content.size() && content[i + n_digits] >= '0' &&
                       content[i + n_digits] <= '7') {
                    code = code * 8 + static_cast<unsigned>(content[i + n_digits++] - '0');
                }
                text::jinja::append_utf8(out, code);
                i += n_digits - 1;
            } else {
                out += '\\';
                out += c;
            }
        }
        return out;
    }

    std::string_view rest_;
};

// The result of reading one literal: a value, "not a literal", or a literal that JSON cannot hold.
struct Literal {
    enum class Kind { value, expression, no_json } kind = Kind::expression;
    Value value;
};

class LiteralParser {
public:
    LiteralParser(const Token* begin, const Token* end) : at_(begin), end_(end) {}

    Literal run() {
        Literal literal = parse(0);
        if (at_ != end_ && literal.kind != Literal::Kind::expression) return {};
        return literal;
    }

private:
    bool is_symbol(std::string_view text) const { return at_ != end_ && at_->kind == TokenKind::symbol && at_->text == text; }
    bool take(std::string_view text) {
        if (!is_symbol(text)) return false;
        ++at_;
        return true;
    }

    Literal parse(int depth) {
        if (at_ == end_ || depth > kNestingMax) return {};
        if (at_->kind == TokenKind::string) return strings();
        if (at_->kind == TokenKind::number) return number();
        if (at_->kind == TokenKind::name) return name();
        if (is_symbol("+") || is_symbol("-")) return signed_number(depth);
        if (take("[")) return sequence("]", depth);
        if (take("(")) return parenthesised(depth);
        if (take("{")) return braces(depth);
        return {};
    }

    Literal number() {
        const Token& token = *at_++;
        return {token.has_no_json ? Literal::Kind::no_json : Literal::Kind::value, token.literal};
    }

    Literal name() {
        const std::string& word = at_->text;
        if (word != "None" && word != "True" && word != "False") return {};
        ++at_;
        return {Literal::Kind::value, word == "None" ? Value::none() : Value(word == "True")};
    }

    Literal strings() {
        std::string joined;
        bool is_bytes = false;
        for (; at_ != end_ && at_->kind == TokenKind::string; ++at_) {
            if (at_->is_formatted) return {};
            is_bytes |= at_->has_no_json;
            joined += *at_->literal.as_string();
        }
        return {is_bytes ? Literal::Kind::no_json : Literal::Kind::value, Value(std::move(joined))};
    }

    Literal signed_number(int depth) {
        const bool is_negative = (at_++)->text == "-";
        Literal operand = parse(depth + 1);
        if (operand.kind == Literal::Kind::no_json && operand.value.is_undefined()) return operand;  // -5j
        const bool is_number =
            operand.value.as_int() != nullptr || operand.value.as_float() != nullptr || operand.value.as_big_int() != nullptr;
        if (operand.kind != Literal::Kind::value || !is_number) return {};
        if (!is_negative) return operand;
        if (const int64_t* i = operand.value.as_int()) return {Literal::Kind::value, Value(-*i)};
        if (const double* d = operand.value.as_float()) return {Literal::Kind::value, Value(-*d)};
        std::string digits = operand.value.as_big_int()->digits;
        if (digits.starts_with('-')) digits.erase(0, 1);
        else digits.insert(0, "-");
        return {Literal::Kind::value, py_int(digits).value_or(Value(0))};
    }

    // The elements up to a closing bracket, which is consumed.
    Literal sequence(std::string_view close, int depth) {
        ValueList items;
        bool has_json = true;
        while (!take(close)) {
            Literal item = parse(depth + 1);
            if (item.kind == Literal::Kind::expression) return {};
            has_json &= item.kind == Literal::Kind::value;
            items.push_back(std::move(item.value));
            if (!take(",") && !is_symbol(close)) return {};
        }
        return {has_json ? Literal::Kind::value : Literal::Kind::no_json, Value(std::move(items))};
    }

    Literal parenthesised(int depth) {
        if (take(")")) return {Literal::Kind::value, Value(ValueList())};
        Literal first = parse(depth + 1);
        if (first.kind == Literal::Kind::expression) return {};
        if (take(")")) return first;
        if (!take(",")) return {};
        Literal rest = sequence(")", depth);
        if (rest.kind == Literal::Kind::expression) return {};
        ValueList items{std::move(first.value)};
        for (const Value& item : *rest.value.as_list()) items.push_back(item);
        const bool has_json = first.kind == Literal::Kind::value && rest.kind == Literal::Kind::value;
        return {has_json ? Literal::Kind::value : Literal::Kind::no_json, Value(std::move(items))};
    }

    Literal braces(int depth) {
        ValueDict members;
        bool has_json = true;
        while (!take("}")) {
            Literal key = parse(depth + 1);
            if (key.kind == Literal::Kind::expression) return {};
            if (!take(":")) return set_rest(depth);
            Literal value = parse(depth + 1);
            if (value.kind == Literal::Kind::expression) return {};
            const std::optional<std::string> name = json_key(key.value);
            has_json &= key.kind == Literal::Kind::value && value.kind == Literal::Kind::value && name.has_value();
            const auto entry = std::ranges::find(members, name.value_or(""), [](const auto& member) { return member.first; });
            if (entry != members.end()) entry->second = std::move(value.value);
            else members.emplace_back(name.value_or(""), std::move(value.value));
            if (!take(",") && !is_symbol("}")) return {};
        }
        return {has_json ? Literal::Kind::value : Literal::Kind::no_json, Value(std::move(members))};
    }

    // The first element of a set has been read.
    Literal set_rest(int depth) {
        if (!take(",") && !is_symbol("}")) return {};
        Literal rest = sequence("}", depth);
        return {rest.kind == Literal::Kind::expression ? rest.kind : Literal::Kind::no_json, Value()};
    }

    // json.dumps' spelling of a dictionary key.
    static std::optional<std::string> json_key(const Value& key) {
        if (const std::string* text = key.as_string()) return *text;
        if (const bool* flag = key.as_bool()) return *flag ? "true" : "false";
        if (const int64_t* integer = key.as_int()) return std::to_string(*integer);
        if (const double* real = key.as_float()) return text::jinja::json_float(*real);
        if (key.is_none()) return "null";
        return std::nullopt;
    }

    const Token* at_;
    const Token* end_;
};

// Source text of tokens with Python's usual spacing.
std::string unparse(const Token* begin, const Token* end) {
    static constexpr std::string_view kOperators[] = {"+",  "-",  "*",  "/",  "//", "%",  "@",  "&", "|", "^",
                                                      "<<", ">>", "**", "==", "!=", "<=", ">=", "<", ">"};
    std::string text;
    for (const Token* token = begin; token != end; ++token) {
        const bool is_operator =
            token->kind == TokenKind::symbol && std::ranges::find(kOperators, token->text) != std::end(kOperators);
        const bool is_word = token->kind != TokenKind::symbol;
        const bool after_word =
            token != begin && (token[-1].kind != TokenKind::symbol || token[-1].text == ")" || token[-1].text == "]");
        if (is_operator && after_word) {
            text += token->text == "**" ? "**" : " " + token->text + " ";
        } else if (token->text == "," || token->text == ":") {
            text += token->text + " ";
        } else {
            if (is_word && token != begin && token[-1].kind != TokenKind::symbol) text += ' ';
            if (token->kind == TokenKind::string && !token->is_formatted && !token->has_no_json) {
                text::jinja::append_string_repr(text, *token->literal.as_string());
            } else {
                text += token->text;
            }
        }
    }
    return text;
}

constexpr std::string_view kWordOperators[] = {"and", "or", "not", "in", "is", "if", "else", "for", "lambda", "await", "async"};
constexpr std::string_view kConstants[] = {"None", "True", "False"};
// Words that can stand nowhere in an argument.
constexpr std::string_view kStatementWords[] = {"as",   "assert", "break",   "class", "continue", "def",    "del",
                                                "elif", "except", "finally", "from",  "global",   "import", "nonlocal",
                                                "pass", "raise",  "return",  "try",   "while",    "with",   "yield"};

template <size_t n>
bool is_among(const std::string& word, const std::string_view (&words)[n]) {
    return std::ranges::find(words, word) != std::end(words);
}

bool is_keyword(const std::string& word) {
    return is_among(word, kWordOperators) || is_among(word, kConstants) || is_among(word, kStatementWords);
}

// A rough check that tokens can be an expression: no two operands side by side, brackets paired.
bool is_expression(const Token* begin, const Token* end) {
    if (begin == end) return false;
    bool after_operand = false;
    for (const Token* token = begin; token != end; ++token) {
        if (token->kind == TokenKind::name && is_among(token->text, kStatementWords)) return false;
        const bool is_word_operator = token->kind == TokenKind::name && is_among(token->text, kWordOperators);
        if (token->kind != TokenKind::symbol && !is_word_operator) {
            const bool joins_strings = token != begin && token->kind == TokenKind::string && token[-1].kind == TokenKind::string;
            if (after_operand && !joins_strings) return false;
            after_operand = true;
        } else {
            after_operand = token->text == ")" || token->text == "]" || token->text == "}";
        }
    }
    return after_operand;
}

// The end of the argument that begins at `at`: the next comma outside brackets. nullptr when brackets do not pair.
const Token* argument_end(const Token* at, const Token* end) {
    std::string open;
    for (; at != end; ++at) {
        if (at->kind != TokenKind::symbol) continue;
        const char c = at->text.front();
        if (c == '(' || c == '[' || c == '{') {
            open += c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (open.empty() || open.back() != c) return nullptr;
            open.pop_back();
        } else if (c == ',' && open.empty()) {
            return at;
        }
    }
    return open.empty() ? end : nullptr;
}

struct Arguments {
    ValueDict members;
    bool is_valid = true;  // false: Python would refuse the source
    bool has_json = true;  // false: some literal cannot be written as JSON
};

void read_argument(const Token* begin, const Token* end, Arguments& arguments, bool& saw_keyword) {
    const bool is_unpacking = begin != end && begin->kind == TokenKind::symbol && (begin->text == "*" || begin->text == "**");
    const bool is_named =
        end - begin >= 2 && begin->kind == TokenKind::name && begin[1].text == "=" && begin[1].kind == TokenKind::symbol;
    const Token* value = is_named ? begin + 2 : is_unpacking ? begin + 1 : begin;
    const bool is_reserved = is_named && is_keyword(begin->text);
    if (is_reserved || !is_expression(value, end) || (!is_named && !is_unpacking && saw_keyword)) {
        arguments.is_valid = false;
        return;
    }
    saw_keyword |= is_named || (is_unpacking && begin->text == "**");
    if (!is_named) return;
    const bool is_repeated =
        std::ranges::any_of(arguments.members, [&](const auto& member) { return member.first == begin->text; });
    if (is_repeated) {
        arguments.is_valid = false;
        return;
    }
    Literal literal = LiteralParser(value, end).run();
    arguments.has_json &= literal.kind != Literal::Kind::no_json;
    Value result = literal.kind == Literal::Kind::expression ? Value(unparse(value, end)) : std::move(literal.value);
    arguments.members.emplace_back(begin->text, std::move(result));
}

bool looks_like_signature(std::string_view source) {
    static const Pattern parameter(R"([A-Za-z_]\w*(?:\s*:\s*\w+)?$)");
    while (true) {
        const size_t comma = source.find(',');
        const std::string_view part = py_strip(source.substr(0, comma));
        if (!part.empty() && !parameter.match_start(part)) return false;
        if (comma == std::string_view::npos) return true;
        source = source.substr(comma + 1);
    }
}

// The parenthesis that closes the one at `open`; npos when there is none.
size_t closing_parenthesis(std::string_view text, size_t open) {
    int depth = 0;
    char quote = 0;
    for (size_t i = open; i < text.size(); ++i) {
        const char c = text[i];
        if (quote != 0) {
            if (c == '\\') ++i;
            else if (c == quote) quote = 0;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '(') {
            ++depth;
        } else if (c == ')' && --depth == 0) {
            return i;
        }
    }
    return std::string_view::npos;
}

}  // namespace

Result<ValueDict> python_arguments(std::string_view source) {
    const ValueDict raw{{"_raw", Value(source)}};
    const std::optional<std::vector<Token>> tokens = Lexer(source).run();
    if (!tokens) return raw;
    Arguments arguments;
    bool saw_keyword = false;
    const Token* at = tokens->data();
    const Token* const end = at + tokens->size();
    while (at != end) {
        const Token* const argument = argument_end(at, end);
        if (argument == nullptr) return raw;
        read_argument(at, argument, arguments, saw_keyword);
        if (!arguments.is_valid) return raw;
        at = argument == end ? end : argument + 1;
    }
    if (!arguments.has_json) return py_raise("TypeError");
    return std::move(arguments.members);
}

Result<ValueList> python_calls(std::string_view text) {
    static const Pattern start(R"(\b([A-Za-z_]\w*)\s*\()");
    ValueList calls;
    std::vector<std::pair<size_t, size_t>> consumed;
    for (const Match& match : start.find_all(text)) {
        const auto is_inside = [&](const auto& range) { return range.first <= match.begin && match.begin < range.second; };
        if (std::ranges::any_of(consumed, is_inside)) continue;
        if (std::ranges::find(kSkippedNames, match.group(1)) != std::end(kSkippedNames)) continue;
        const size_t open = match.end - 1;
        const size_t close = closing_parenthesis(text, open);
        if (close == std::string_view::npos) continue;
        consumed.emplace_back(open, close + 1);
        const std::string_view source = py_strip(text.substr(open + 1, close - open - 1));
        if (!source.empty() && looks_like_signature(source)) continue;
        TRY_ASSIGN(ValueDict arguments, python_arguments(source));
        calls.push_back(Value(ValueDict{{"name", Value(match.group(1))}, {"arguments", Value(std::move(arguments))}}));
    }
    return calls;
}

}  // namespace espalier::bench
