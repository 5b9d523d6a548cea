// The syntax tree. Nodes are owned by one arena, so that freeing a deep tree does not recurse; a chain of equal operators is one
// node with many operands, so that a long one is not deep.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/object.h"
#include "text/jinja/operators.h"

namespace espalier::text::jinja {

struct Expr;

struct Argument {
    enum class Kind { positional, named, spread_list, spread_dict };
    Kind kind = Kind::positional;
    std::string name;
    const Expr* value = nullptr;
};

struct Expr {
    enum class Kind {
        constant,     // value
        name,         // name, symbol
        list,         // operands
        tuple,        // operands
        dict,         // operands: key, value, key, value, …
        attribute,    // operands[0] . name
        subscript,    // operands[0] [operands[1]]
        slice,        // operands[0] [operands[1] : operands[2] : operands[3]], nullptr where left out
        call,         // operands[0] (args)
        filter,       // operands[0] | name(args); operands empty in a filter block
        test,         // operands[0] is name(args)
        negation,     // not operands[0]
        minus,        // - operands[0]
        plus,         // + operands[0]
        arithmetic,   // operands[0] binary_ops[0] operands[1] …, from the left
        concat,       // operands ~ …
        comparison,   // operands[0] compare_ops[0] operands[1] …, chained
        logical_and,  // operands
        logical_or,   // operands
        conditional,  // operands[0] if operands[1] else operands[2] (nullptr where left out)
    };
    Kind kind = Kind::constant;
    int line = 0;
    int depth = 1;
    Val value;
    std::string name;
    int symbol = -1;
    std::vector<const Expr*> operands;
    std::vector<BinaryOp> binary_ops;
    std::vector<CompareOp> compare_ops;
    std::vector<Argument> args;
    FilterFunction filter = nullptr;  // nullptr: unknown, an error only if it is reached
    TestFunction test = nullptr;
};

// What an assignment or loop binds.
struct Target {
    enum class Kind { name, tuple, namespace_attribute };
    Kind kind = Kind::name;
    std::string name;  // the attribute's for namespace_attribute
    int symbol = -1;
    std::vector<Target> items;
};

struct Stmt;
using Block = std::vector<const Stmt*>;

struct Macro {
    struct Parameter {
        std::string name;
        int symbol = -1;
        const Expr* fallback = nullptr;
    };
    std::string name;
    std::vector<Parameter> parameters;
    Block body;
    bool uses_caller = false;
    bool uses_varargs = false;
    bool uses_kwargs = false;
};

struct Stmt {
    enum class Kind {
        text,          // text
        output,        // exprs, one after the other
        if_chain,      // exprs[i] guards blocks[i]; one more block is the else
        for_loop,      // target in exprs[0], exprs[1] = filter or nullptr; blocks: body, else; is_recursive
        set,           // target = exprs[0]
        set_block,     // target = blocks[0] through exprs[0] (filters) if not nullptr
        macro,         // macro, symbol
        call_block,    // exprs[0] is the call, macro is the caller
        filter_block,  // exprs[0] filters blocks[0]
        with,          // targets[i] = exprs[i] in blocks[0]
        scope,         // blocks[0] in a scope of its own
        break_loop,
        continue_loop,
    };
    Kind kind = Kind::text;
    int line = 0;
    std::string text;
    std::vector<const Expr*> exprs;
    std::vector<Target> targets;
    std::vector<Block> blocks;
    std::unique_ptr<Macro> macro;
    int symbol = -1;
    bool is_recursive = false;
};

struct SyntaxTree {
    std::vector<std::unique_ptr<Expr>> exprs;
    std::vector<std::unique_ptr<Stmt>> stmts;
    std::vector<std::string> symbols;  // the names of variables, by symbol
    Block root;
};

// Symbols that every tree begins with.
enum WellKnownSymbol : int { kSymbolLoop, kSymbolCaller, kSymbolVarargs, kSymbolKwargs, kWellKnownSymbols };

}  // namespace espalier::text::jinja
