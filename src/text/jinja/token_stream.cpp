#include "text/jinja/token_stream.h"

#include <fmt/format.h>

namespace espalier::text::jinja {
namespace {

std::string_view describe_kind(Token::Kind kind) {
    switch (kind) {
        case Token::Kind::data: return "template data / text";
        case Token::Kind::variable_begin: return "begin of print statement";
        case Token::Kind::variable_end: return "end of print statement";
        case Token::Kind::block_begin: return "begin of statement block";
        case Token::Kind::block_end: return "end of statement block";
        case Token::Kind::name: return "name";
        case Token::Kind::string: return "string";
        case Token::Kind::integer: return "integer";
        case Token::Kind::number: return "float";
        case Token::Kind::op: return "operator";
        case Token::Kind::end: return "end of template";
    }
    return "token";
}

}  // namespace

std::string describe(const Token& token) {
    if (token.kind == Token::Kind::name || token.kind == Token::Kind::op) return token.text;
    return std::string(describe_kind(token.kind));
}

Token TokenStream::next() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
}

bool TokenStream::skip_op(std::string_view spelled) {
    if (!is_op(spelled)) return false;
    next();
    return true;
}

bool TokenStream::skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
}

Token TokenStream::expect(Token::Kind kind) {
    if (!is(kind)) {
        fail_expected(describe_kind(kind));
        return {};
    }
    return next();
}

void TokenStream::expect_op(std::string_view spelled) {
    if (!skip_op(spelled)) fail_expected(spelled);
}

void TokenStream::expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expected(name);
}

void TokenStream::fail_expected(std::string_view wanted) {
    if (is(Token::Kind::end)) fail(fmt::format("unexpected end of template, expected '{}'.", wanted));
    else fail(fmt::format("expected token '{}', got '{}'", wanted, describe(current())));
}

void TokenStream::fail(ErrorKind kind, std::string message) {
    fail_at({kind, std::move(message), current().line});
}

void TokenStream::fail_at(TemplateError error) {
    if (!has_failed_) {
        has_failed_ = true;
        error_ = std::move(error);
    }
    at_ = tokens_.size() - 1;
}

}  // namespace espalier::text::jinja
