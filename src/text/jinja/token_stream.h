// The parser's view of the tokens, and its one error. After an error the stream stands at its end and every parse function
// returns something harmless, so that only loops and the very end have to look for it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/errors.h"
#include "text/jinja/lexer.h"

namespace espalier::text::jinja {

class TokenStream {
public:
    explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    const Token& current() const { return tokens_[at_]; }
    const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    bool is(Token::Kind kind) const { return current().kind == kind; }
    bool is_op(std::string_view spelled) const { return is(Token::Kind::op) && current().text == spelled; }
    bool is_name(std::string_view name) const { return is(Token::Kind::name) && current().text == name; }
    Token next();
    bool skip_op(std::string_view spelled);
    bool skip_name(std::string_view name);
    Token expect(Token::Kind kind);
    void expect_op(std::string_view spelled);
    void expect_name(std::string_view name);

    void fail(std::string message) { fail(ErrorKind::syntax, std::move(message)); }
    void fail(ErrorKind kind, std::string message);
    void fail_at(TemplateError error);
    bool has_failed() const { return has_failed_; }
    const TemplateError& error() const { return error_; }

private:
    void fail_expected(std::string_view wanted);

    std::vector<Token> tokens_;
    size_t at_ = 0;
    bool has_failed_ = false;
    TemplateError error_;
};

// "end of print statement", "begin of statement block", a name, an operator: as error messages call tokens.
std::string describe(const Token& token);

}  // namespace espalier::text::jinja
