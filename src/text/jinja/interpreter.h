// Runs a syntax tree. Scopes are looked up by name from the inside out, as Jinja's compiled code resolves them: `for`, macros,
// `with` and block assignments open a scope, `if` does not.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace espalier::text::jinja {

struct Scope {
    std::vector<std::pair<int, Val>> names;
    Scope* parent = nullptr;
    bool is_captured = false;  // a macro defined here may outlive the block
};

struct MacroObject : Object {
    MacroObject(const Macro& macro_definition, Scope* macro_scope)
        : Object(Kind::macro), definition(macro_definition), scope(macro_scope) {}
    const Macro& definition;
    Scope* scope;
};

struct LoopObject : Object {
    explicit LoopObject(const Stmt& loop_stmt) : Object(Kind::loop), stmt(loop_stmt) {}
    const Stmt& stmt;
    Scope* outer = nullptr;  // where the loop stands
    ValList items;           // those not yet looked at begin at `next`
    size_t next = 0;
    bool is_filtered = false;  // the items still have to pass the loop's condition
    bool has_after = false;    // `after` was fetched ahead
    Val after;
    bool has_previous = false;
    Val previous;
    Val current;
    int64_t index0 = -1;
    int64_t depth0 = 0;
    bool has_changed_args = false;
    ValList changed_args;
};

class Interpreter : public Runtime {
public:
    Interpreter(const SyntaxTree& tree, const Limits& limits) : Runtime(limits), tree_(tree) {}

    // False on error; see error().
    [[nodiscard]] bool render(const Value& context, std::string& out);

private:
    enum class Flow { normal, broken, continued, failed };

    // Statements (interpreter.cpp).
    Flow run_block(const Block& block);
    Flow run(const Stmt& stmt);
    Flow run_if(const Stmt& stmt);
    Flow run_set_block(const Stmt& stmt);
    Flow run_call_block(const Stmt& stmt);
    Flow run_filter_block(const Stmt& stmt);
    Flow run_with(const Stmt& stmt);
    Flow run_in_scope(const Block& block);
    [[nodiscard]] bool run_loop(const Stmt& stmt, const Val& iterable, Scope* outer, int64_t depth0);
    [[nodiscard]] bool run_captured(const Block& block, Val& out);
    [[nodiscard]] bool define_macro(const Macro& definition, Val& out);
    [[nodiscard]] bool assign(const Target& target, const Val& value);
    [[nodiscard]] bool write(std::string_view text);
    [[nodiscard]] bool write_value(const Val& value);

    // Loops.
    [[nodiscard]] bool fetch(LoopObject& loop, bool& has_item, Val& item);
    [[nodiscard]] bool peek(LoopObject& loop);
    [[nodiscard]] bool loop_length(LoopObject& loop, int64_t& out);
    [[nodiscard]] bool loop_attribute(LoopObject& loop, std::string_view name, Val& out);
    [[nodiscard]] bool call_loop_method(LoopObject& loop, std::string_view name, const CallArgs& args, Val& out, bool& is_known);

    // Expressions (interpreter_expressions.cpp).
    [[nodiscard]] bool eval(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_node(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_sequence(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_dict(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_attribute(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_subscript(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_slice(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_call(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_filter(const Expr& expr, const Val* input, Val& out);
    [[nodiscard]] bool eval_test(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_sign(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_arithmetic(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_concat(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_comparison(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_logical(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_conditional(const Expr& expr, Val& out);
    [[nodiscard]] bool eval_args(const std::vector<Argument>& args, CallArgs& out);
    [[nodiscard]] bool call(const Val& callee, const CallArgs& args, Val& out);
    [[nodiscard]] bool call_macro(const MacroObject& macro, const CallArgs& args, Val& out);
    [[nodiscard]] bool bind_macro(const MacroObject& macro, const CallArgs& args, Scope& scope);
    [[nodiscard]] bool attribute_of(const Val& object, std::string_view name, Val& out);

    // Names.
    [[nodiscard]] bool look_up(int symbol, Val& out);
    [[nodiscard]] bool bind_globals(const Value& context);
    void set_name(Scope& scope, int symbol, Val value);
    Scope* enter_scope(Scope* parent);
    void leave_scope(Scope* scope, Scope* back_to);
    void capture(Scope* scope);

    const SyntaxTree& tree_;
    std::string* out_ = nullptr;
    Scope* scope_ = nullptr;
    std::vector<Val> globals_;  // by symbol: context variables and functions
    std::deque<Scope> scopes_;
    std::vector<Scope*> free_scopes_;
    int depth_ = 0;
};

}  // namespace espalier::text::jinja
