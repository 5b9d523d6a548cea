// The parser's state, shared by the files that parse expressions and statements.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace espalier::text::jinja {

class Parser {
public:
    explicit Parser(std::vector<Token> tokens);
    std::variant<std::unique_ptr<const SyntaxTree>, TemplateError> run();

private:
    enum class Condexpr { yes, no };
    // A nesting level of the source; the parser recurses once per level.
    class Nesting {
    public:
        explicit Nesting(Parser& parser);
        ~Nesting() { --parser_.nesting_; }
        Nesting(const Nesting&) = delete;
        Nesting& operator=(const Nesting&) = delete;

    private:
        Parser& parser_;
    };
    // A filter or test that does not exist: an error where Jinja's compiler sees it, else only when it is reached.
    struct Unresolved {
        Expr* expr = nullptr;
        bool is_soft = false;
    };

    // Expressions (parser_expressions.cpp), each returns a node, never nullptr.
    Expr* parse_expression(Condexpr condexpr = Condexpr::yes);
    Expr* parse_conditional();
    Expr* parse_or();
    Expr* parse_and();
    Expr* parse_not();
    Expr* parse_comparison();
    Expr* parse_sum();
    Expr* parse_concat();
    Expr* parse_product();
    Expr* parse_power();
    enum class WithFilter { yes, no };
    Expr* parse_unary(WithFilter with_filter = WithFilter::yes);
    Expr* parse_primary();
    Expr* parse_name_or_constant();
    Expr* parse_list();
    Expr* parse_dict();
    enum class Parentheses { yes, no };
    Expr* parse_tuple(Condexpr condexpr, std::string_view end_name = {}, Parentheses parentheses = Parentheses::no);
    Expr* parse_postfix(Expr* expr);
    Expr* parse_filters(Expr* expr);
    Expr* parse_one_filter(Expr* input);
    Expr* parse_filter_chain();  // of a filter block: name(args) | name …, applied to no operand
    Expr* parse_test(Expr* expr);
    Expr* parse_subscript(Expr* expr);
    Expr* parse_subscript_item(Expr* object);
    Expr* parse_call(Expr* callee);
    std::vector<Argument> parse_arguments();
    Expr* chain(Expr::Kind kind, Expr* first);
    Expr* make(Expr::Kind kind);
    Expr* add_operand(Expr* parent, const Expr* operand);
    void resolve(Expr* expr);

    // Statements (parser_statements.cpp).
    using EndNames = std::vector<std::string_view>;
    Block parse_block(const EndNames& end_names);
    Block parse_body(const EndNames& end_names);
    Stmt* parse_statement();
    Stmt* parse_if();
    Stmt* parse_for();
    Stmt* parse_set();
    Stmt* parse_macro();
    Stmt* parse_call_block();
    Stmt* parse_filter_block();
    Stmt* parse_with();
    Stmt* parse_scope(std::string_view end_name);
    Stmt* parse_loop_control(Stmt::Kind kind);
    void parse_signature(Macro& macro);
    Block parse_macro_body(Macro& macro, std::string_view end_name);
    Target parse_target(std::string_view end_name);
    Target parse_single_target();
    Stmt* make_stmt(Stmt::Kind kind);
    void fail_unknown_tag(const std::string* name);
    void check_unresolved();

    int symbol_of(const std::string& name);
    void note_name(const std::string& name);

    TokenStream stream_;
    std::unique_ptr<SyntaxTree> tree_;
    std::map<std::string, int, std::less<>> symbols_;
    std::vector<Unresolved> unresolved_;
    std::vector<Macro*> open_macros_;
    std::vector<std::string> open_tags_;
    std::vector<EndNames> wanted_ends_;
    int nesting_ = 0;
    int loops_ = 0;         // enclosing for bodies within the current macro
    bool is_soft_ = false;  // inside an if: unknown filters are errors only when reached
};

}  // namespace espalier::text::jinja
