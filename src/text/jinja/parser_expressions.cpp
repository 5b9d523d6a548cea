// Expressions, by Jinja's levels of precedence from loosest to tightest.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/big_integer.h"
#include "text/jinja/parser_impl.h"
#include "text/jinja/python_text.h"

namespace espalier::text::jinja {
namespace {

// Evaluation recurses once per level, so a chain of attributes and filters is bounded too.
constexpr int kExpressionDepthMax = 150;

bool starts_test_argument(const TokenStream& stream) {
    switch (stream.current().kind) {
        case Token::Kind::name: return !stream.is_name("else") && !stream.is_name("or") && !stream.is_name("and");
        case Token::Kind::string:
        case Token::Kind::integer:
        case Token::Kind::number: return true;
        default: return stream.is_op("(") || stream.is_op("[") || stream.is_op("{");
    }
}

}  // namespace

Expr* Parser::make(Expr::Kind kind) {
    tree_->exprs.push_back(std::make_unique<Expr>());
    Expr* expr = tree_->exprs.back().get();
    expr->kind = kind;
    expr->line = stream_.current().line;
    return expr;
}

Expr* Parser::add_operand(Expr* parent, const Expr* operand) {
    parent->operands.push_back(operand);
    if (operand != nullptr) parent->depth = std::max(parent->depth, operand->depth + 1);
    if (parent->depth > kExpressionDepthMax)
        stream_.fail(fmt::format("expression nested deeper than {} levels", kExpressionDepthMax));
    return parent;
}

// The node that collects a chain of one operator; made when the second operand comes.
Expr* Parser::chain(Expr::Kind kind, Expr* first) {
    return add_operand(make(kind), first);
}

Expr* Parser::parse_expression(Condexpr condexpr) {
    const Nesting nesting(*this);
    return condexpr == Condexpr::yes ? parse_conditional() : parse_or();
}

Expr* Parser::parse_conditional() {
    const size_t unresolved_before = unresolved_.size();
    Expr* expr = parse_or();
    while (stream_.skip_name("if")) {
        Expr* conditional = chain(Expr::Kind::conditional, expr);
        add_operand(conditional, parse_or());
        const Nesting nesting(*this);
        add_operand(conditional, stream_.skip_name("else") ? parse_conditional() : nullptr);
        for (size_t i = unresolved_before; i < unresolved_.size(); ++i) unresolved_[i].is_soft = true;
        expr = conditional;
    }
    return expr;
}

Expr* Parser::parse_or() {
    Expr* expr = parse_and();
    if (!stream_.is_name("or")) return expr;
    expr = chain(Expr::Kind::logical_or, expr);
    while (stream_.skip_name("or")) add_operand(expr, parse_and());
    return expr;
}

Expr* Parser::parse_and() {
    Expr* expr = parse_not();
    if (!stream_.is_name("and")) return expr;
    expr = chain(Expr::Kind::logical_and, expr);
    while (stream_.skip_name("and")) add_operand(expr, parse_not());
    return expr;
}

Expr* Parser::parse_not() {
    if (!stream_.is_name("not")) return parse_comparison();
    const Nesting nesting(*this);
    Expr* expr = make(Expr::Kind::negation);
    stream_.next();
    return add_operand(expr, parse_not());
}

Expr* Parser::parse_comparison() {
    static constexpr std::pair<std::string_view, CompareOp> kOps[] = {{"==", CompareOp::eq}, {"!=", CompareOp::ne},
                                                                      {"<", CompareOp::lt},  {"<=", CompareOp::le},
                                                                      {">", CompareOp::gt},  {">=", CompareOp::ge}};
    Expr* expr = parse_sum();
    Expr* comparison = nullptr;
    for (;;) {
        CompareOp op = CompareOp::in;
        const auto* found =
            std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& entry) { return stream_.is_op(entry.first); });
        if (found != std::end(kOps)) {
            op = found->second;
        } else if (stream_.is_name("not") && stream_.look().kind == Token::Kind::name && stream_.look().text == "in") {
            op = CompareOp::not_in;
            stream_.next();
        } else if (!stream_.is_name("in")) {
            return comparison != nullptr ? comparison : expr;
        }
        if (comparison == nullptr) comparison = chain(Expr::Kind::comparison, expr);
        stream_.next();
        comparison->compare_ops.push_back(op);
        add_operand(comparison, parse_sum());
    }
}

Expr* Parser::parse_sum() {
    Expr* expr = parse_concat();
    if (!stream_.is_op("+") && !stream_.is_op("-")) return expr;
    expr = chain(Expr::Kind::arithmetic, expr);
    while (stream_.is_op("+") || stream_.is_op("-")) {
        expr->binary_ops.push_back(stream_.next().text == "+" ? BinaryOp::add : BinaryOp::sub);
        add_operand(expr, parse_concat());
    }
    return expr;
}

Expr* Parser::parse_concat() {
    Expr* expr = parse_product();
    if (!stream_.is_op("~")) return expr;
    expr = chain(Expr::Kind::concat, expr);
    while (stream_.skip_op("~")) add_operand(expr, parse_product());
    return expr;
}

Expr* Parser::parse_product() {
    static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
        {"*", BinaryOp::mul}, {"/", BinaryOp::div}, {"//", BinaryOp::floor_div}, {"%", BinaryOp::mod}};
    Expr* expr = parse_power();
    Expr* product = nullptr;
    for (;;) {
        const auto* found =
            std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& entry) { return stream_.is_op(entry.first); });
        if (found == std::end(kOps)) return product != nullptr ? product : expr;
        if (product == nullptr) product = chain(Expr::Kind::arithmetic, expr);
        stream_.next();
        product->binary_ops.push_back(found->second);
        add_operand(product, parse_power());
    }
}

// From the left, unlike Python's: 2 ** 3 ** 2 is 64.
Expr* Parser::parse_power() {
    Expr* expr = parse_unary();
    if (!stream_.is_op("**")) return expr;
    expr = chain(Expr::Kind::arithmetic, expr);
    while (stream_.skip_op("**")) {
        expr->binary_ops.push_back(BinaryOp::pow);
        add_operand(expr, parse_unary());
    }
    return expr;
}

Expr* Parser::parse_unary(WithFilter with_filter) {
    Expr* expr = nullptr;
    if (stream_.is_op("-") || stream_.is_op("+")) {
        const Nesting nesting(*this);
        expr = make(stream_.is_op("-") ? Expr::Kind::minus : Expr::Kind::plus);
        stream_.next();
        add_operand(expr, parse_unary(WithFilter::no));
    } else {
        expr = parse_primary();
    }
    expr = parse_postfix(expr);
    return with_filter == WithFilter::yes ? parse_filters(expr) : expr;
}

Expr* Parser::parse_primary() {
    switch (stream_.current().kind) {
        case Token::Kind::name: return parse_name_or_constant();
        case Token::Kind::string: {
            Expr* expr = make(Expr::Kind::constant);
            std::string text;
            while (stream_.is(Token::Kind::string)) text += stream_.next().text;
            expr->value = Val(std::move(text));
            return expr;
        }
        case Token::Kind::integer: {
            Expr* expr = make(Expr::Kind::constant);
            const std::string digits = stream_.next().text;
            if (digits.size() > kIntegerDigitsMax) stream_.fail(fmt::format("integer of more than {} digits", kIntegerDigitsMax));
            expr->value = integer_from_digits(digits);
            return expr;
        }
        case Token::Kind::number: {
            Expr* expr = make(Expr::Kind::constant);
            expr->value = Val(parse_float(stream_.next().text));
            return expr;
        }
        default: break;
    }
    if (stream_.skip_op("(")) {
        Expr* expr = parse_tuple(Condexpr::yes, {}, Parentheses::yes);
        stream_.expect_op(")");
        return expr;
    }
    if (stream_.is_op("[")) return parse_list();
    if (stream_.is_op("{")) return parse_dict();
    stream_.fail(fmt::format("unexpected '{}'", describe(stream_.current())));
    return make(Expr::Kind::constant);
}

Expr* Parser::parse_name_or_constant() {
    Expr* expr = make(Expr::Kind::constant);
    std::string name = stream_.next().text;
    if (name == "true" || name == "True") {
        expr->value = Val(true);
    } else if (name == "false" || name == "False") {
        expr->value = Val(false);
    } else if (name == "none" || name == "None") {
        expr->value = Val::none();
    } else {
        expr->kind = Expr::Kind::name;
        expr->symbol = symbol_of(name);
        note_name(name);
        expr->name = std::move(name);
    }
    return expr;
}

Expr* Parser::parse_list() {
    Expr* expr = make(Expr::Kind::list);
    stream_.expect_op("[");
    while (!stream_.is_op("]") && !stream_.has_failed()) {
        if (!expr->operands.empty()) stream_.expect_op(",");
        if (stream_.is_op("]")) break;
        add_operand(expr, parse_expression());
    }
    stream_.expect_op("]");
    return expr;
}

Expr* Parser::parse_dict() {
    Expr* expr = make(Expr::Kind::dict);
    stream_.expect_op("{");
    while (!stream_.is_op("}") && !stream_.has_failed()) {
        if (!expr->operands.empty()) stream_.expect_op(",");
        if (stream_.is_op("}")) break;
        add_operand(expr, parse_expression());
        stream_.expect_op(":");
        add_operand(expr, parse_expression());
    }
    stream_.expect_op("}");
    return expr;
}

Expr* Parser::parse_tuple(Condexpr condexpr, std::string_view end_name, Parentheses parentheses) {
    Expr* tuple = make(Expr::Kind::tuple);
    bool is_tuple = false;
    const auto is_end = [&] {
        return stream_.is(Token::Kind::variable_end) || stream_.is(Token::Kind::block_end) || stream_.is_op(")") ||
               (!end_name.empty() && stream_.is_name(end_name));
    };
    std::vector<const Expr*> items;
    while (!stream_.has_failed()) {
        if (!items.empty()) stream_.expect_op(",");
        if (is_end()) break;
        items.push_back(parse_expression(condexpr));
        if (!stream_.is_op(",")) break;
        is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return const_cast<Expr*>(items[0]);
    if (!is_tuple && parentheses == Parentheses::no) {
        stream_.fail(fmt::format("Expected an expression, got '{}'", describe(stream_.current())));
    }
    for (const Expr* item : items) add_operand(tuple, item);
    return tuple;
}

Expr* Parser::parse_postfix(Expr* expr) {
    for (;;) {
        if (stream_.is_op(".") || stream_.is_op("[")) expr = parse_subscript(expr);
        else if (stream_.is_op("(")) expr = parse_call(expr);
        else return expr;
    }
}

Expr* Parser::parse_filters(Expr* expr) {
    for (;;) {
        if (stream_.skip_op("|")) expr = parse_one_filter(expr);
        else if (stream_.is_name("is")) expr = parse_test(expr);
        else if (stream_.is_op("(")) expr = parse_call(expr);
        else return expr;
    }
}

Expr* Parser::parse_one_filter(Expr* input) {
    Expr* expr = make(Expr::Kind::filter);
    expr->name = stream_.expect(Token::Kind::name).text;
    while (stream_.skip_op(".")) expr->name.append(".").append(stream_.expect(Token::Kind::name).text);
    if (input != nullptr) add_operand(expr, input);
    if (stream_.is_op("(")) expr->args = parse_arguments();
    expr->filter = find_filter(expr->name);
    resolve(expr);
    return expr;
}

Expr* Parser::parse_filter_chain() {
    Expr* expr = parse_one_filter(nullptr);
    while (stream_.skip_op("|")) expr = parse_one_filter(expr);
    return expr;
}

Expr* Parser::parse_test(Expr* operand) {
    stream_.expect_name("is");
    const bool is_negated = stream_.skip_name("not");
    Expr* expr = make(Expr::Kind::test);
    expr->name = stream_.expect(Token::Kind::name).text;
    while (stream_.skip_op(".")) expr->name.append(".").append(stream_.expect(Token::Kind::name).text);
    add_operand(expr, operand);
    if (stream_.is_op("(")) {
        expr->args = parse_arguments();
    } else if (starts_test_argument(stream_)) {
        if (stream_.is_name("is")) stream_.fail("You cannot chain multiple tests with is");
        const Nesting nesting(*this);
        expr->args.push_back({Argument::Kind::positional, {}, parse_postfix(parse_primary())});
    }
    expr->test = find_test(expr->name);
    resolve(expr);
    return is_negated ? add_operand(make(Expr::Kind::negation), expr) : expr;
}

void Parser::resolve(Expr* expr) {
    const bool is_known = expr->kind == Expr::Kind::filter ? expr->filter != nullptr : expr->test != nullptr;
    if (!is_known && !stream_.has_failed()) unresolved_.push_back({expr, is_soft_});
}

Expr* Parser::parse_subscript(Expr* object) {
    if (stream_.skip_op("[")) {
        Expr* expr = parse_subscript_item(object);
        stream_.expect_op("]");
        return expr;
    }
    stream_.expect_op(".");
    Expr* expr = make(Expr::Kind::attribute);
    add_operand(expr, object);
    const Token token = stream_.next();
    if (token.kind == Token::Kind::integer) {
        Expr* index = make(Expr::Kind::constant);
        index->value = integer_from_digits(token.text);
        expr->kind = Expr::Kind::subscript;
        return add_operand(expr, index);
    }
    if (token.kind != Token::Kind::name) stream_.fail("expected name or number");
    expr->name = token.text;
    return expr;
}

Expr* Parser::parse_subscript_item(Expr* object) {
    Expr* expr = make(Expr::Kind::subscript);
    add_operand(expr, object);
    const auto part_ends = [&] { return stream_.is_op(":") || stream_.is_op("]") || stream_.has_failed(); };
    if (!stream_.is_op(":")) {
        add_operand(expr, parse_expression());
        if (stream_.is_op(",")) stream_.fail(ErrorKind::unsupported, "a subscript with several indices is not supported");
        if (!stream_.is_op(":")) return expr;
    } else {
        add_operand(expr, nullptr);
    }
    expr->kind = Expr::Kind::slice;
    stream_.next();
    add_operand(expr, part_ends() ? nullptr : parse_expression());
    if (stream_.skip_op(":")) add_operand(expr, part_ends() ? nullptr : parse_expression());
    else add_operand(expr, nullptr);
    return expr;
}

Expr* Parser::parse_call(Expr* callee) {
    Expr* expr = make(Expr::Kind::call);
    add_operand(expr, callee);
    expr->args = parse_arguments();
    for (const Argument& argument : expr->args) expr->depth = std::max(expr->depth, argument.value->depth + 1);
    return expr;
}

std::vector<Argument> Parser::parse_arguments() {
    const Nesting nesting(*this);
    std::vector<Argument> args;
    Argument::Kind latest = Argument::Kind::positional;
    const auto is_spread = [](Argument::Kind kind) {
        return kind == Argument::Kind::spread_list || kind == Argument::Kind::spread_dict;
    };
    stream_.expect_op("(");
    while (!stream_.is_op(")") && !stream_.has_failed()) {
        if (!args.empty()) stream_.expect_op(",");
        if (stream_.is_op(")")) break;
        Argument argument;
        if (stream_.skip_op("*")) argument.kind = Argument::Kind::spread_list;
        else if (stream_.skip_op("**")) argument.kind = Argument::Kind::spread_dict;
        else if (stream_.is(Token::Kind::name) && stream_.look().kind == Token::Kind::op && stream_.look().text == "=") {
            argument.kind = Argument::Kind::named;
            argument.name = stream_.next().text;
            stream_.next();
        }
        const bool is_misplaced = argument.kind == Argument::Kind::positional ? latest != Argument::Kind::positional
                                  : argument.kind == Argument::Kind::named    ? latest == Argument::Kind::spread_dict
                                                                              : is_spread(latest) && latest >= argument.kind;
        if (is_misplaced) stream_.fail("invalid syntax for function call expression");
        latest = argument.kind;
        argument.value = parse_expression();
        args.push_back(std::move(argument));
    }
    stream_.expect_op(")");
    return args;
}

}  // namespace espalier::text::jinja
