// Statements, scopes and loops.
#include "text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/convert.h"

namespace espalier::text::jinja {

bool Interpreter::render(const Value& context, std::string& out) {
    if (!bind_globals(context)) return false;
    out_ = &out;
    scope_ = enter_scope(nullptr);
    return run_block(tree_.root) != Flow::failed;
}

// ---- Names

bool Interpreter::bind_globals(const Value& context) {
    globals_.resize(tree_.symbols.size());
    for (size_t symbol = 0; symbol < globals_.size(); ++symbol) {
        const std::string& name = tree_.symbols[symbol];
        if (const Value* value = context.find(name)) {
            if (!to_val(*this, *value, globals_[symbol])) return false;
        } else if (const GlobalFunction function = find_global(name)) {
            globals_[symbol] = Val(own(std::make_unique<FunctionObject>(name, function)));
        }
    }
    return true;
}

bool Interpreter::look_up(int symbol, Val& out) {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
        for (const auto& [name, value] : scope->names) {
            if (name != symbol) continue;
            out = value;
            return true;
        }
    }
    const auto i = static_cast<size_t>(symbol);
    out = globals_[i];
    if (out.is_undefined()) out = Val::undefined({UndefinedReason::Kind::variable, tree_.symbols[i], {}});
    return true;
}

void Interpreter::set_name(Scope& scope, int symbol, Val value) {
    for (auto& [name, current] : scope.names) {
        if (name != symbol) continue;
        current = std::move(value);
        return;
    }
    scope.names.emplace_back(symbol, std::move(value));
}

Scope* Interpreter::enter_scope(Scope* parent) {
    if (free_scopes_.empty()) {
        scopes_.emplace_back();
        free_scopes_.push_back(&scopes_.back());
    }
    Scope* scope = free_scopes_.back();
    free_scopes_.pop_back();
    scope->parent = parent;
    return scope;
}

void Interpreter::leave_scope(Scope* scope, Scope* back_to) {
    scope_ = back_to;
    if (scope->is_captured) return;
    scope->names.clear();
    free_scopes_.push_back(scope);
}

void Interpreter::capture(Scope* scope) {
    for (; scope != nullptr && !scope->is_captured; scope = scope->parent) scope->is_captured = true;
}

bool Interpreter::assign(const Target& target, const Val& value) {
    if (target.kind == Target::Kind::name) {
        set_name(*scope_, target.symbol, value);
        return true;
    }
    if (target.kind == Target::Kind::namespace_attribute) {
        Val object;
        if (!look_up(target.symbol, object)) return false;
        const Object* pointer = object.as_object();
        if (pointer == nullptr || pointer->kind != Object::Kind::name_space) {
            return fail(ErrorKind::runtime, "cannot assign attribute on non-namespace object");
        }
        static_cast<NamespaceObject*>(object.as_object())->attributes.put(Val(target.name), value);
        return true;
    }
    ValList items;
    if (value.as_list() == nullptr && value.as_dict() == nullptr && !value.is_string() && !value.is_undefined()) {
        return fail_type(fmt::format("cannot unpack non-iterable {} object", type_name(value)));
    }
    if (!iterate(*this, value, items)) return false;
    const size_t wanted = target.items.size();
    if (items.size() < wanted) {
        return fail(ErrorKind::value_error,
                    fmt::format("not enough values to unpack (expected {}, got {})", wanted, items.size()));
    }
    if (items.size() > wanted)
        return fail(ErrorKind::value_error, fmt::format("too many values to unpack (expected {})", wanted));
    for (size_t i = 0; i < wanted; ++i) {
        if (!assign(target.items[i], items[i])) return false;
    }
    return true;
}

// ---- Output

bool Interpreter::write(std::string_view text) {
    if (!charge_bytes(text.size())) return false;
    if (out_->size() + text.size() > limits().text_bytes) return charge_bytes(limits().text_bytes + 1);
    *out_ += text;
    return true;
}

bool Interpreter::write_value(const Val& value) {
    if (const std::string* text = value.as_string()) return write(*text);
    return append_str(*this, *out_, value);
}

bool Interpreter::run_captured(const Block& block, Val& out) {
    std::string text;
    std::string* const outer = std::exchange(out_, &text);
    const Flow flow = run_block(block);
    out_ = outer;
    return flow != Flow::failed && make_text(std::move(text), out);
}

// ---- Statements

Interpreter::Flow Interpreter::run_block(const Block& block) {
    if (++depth_ > limits().depth) {
        fail(ErrorKind::limit, fmt::format("the template nests or recurses deeper than {} levels", limits().depth));
        return Flow::failed;
    }
    Flow flow = Flow::normal;
    for (const Stmt* stmt : block) {
        flow = run(*stmt);
        if (flow != Flow::normal) break;
    }
    --depth_;
    return flow;
}

Interpreter::Flow Interpreter::run(const Stmt& stmt) {
    set_line(stmt.line);
    if (!charge_steps(1)) return Flow::failed;
    const auto done = [](bool is_fine) { return is_fine ? Flow::normal : Flow::failed; };
    Val value;
    switch (stmt.kind) {
        case Stmt::Kind::text: return done(write(stmt.text));
        case Stmt::Kind::output:
            for (const Expr* expr : stmt.exprs) {
                if (!eval(*expr, value) || !write_value(value)) return Flow::failed;
            }
            return Flow::normal;
        case Stmt::Kind::if_chain: return run_if(stmt);
        case Stmt::Kind::for_loop: return done(eval(*stmt.exprs[0], value) && run_loop(stmt, value, scope_, 0));
        case Stmt::Kind::set: return done(eval(*stmt.exprs[0], value) && assign(stmt.targets[0], value));
        case Stmt::Kind::set_block: return run_set_block(stmt);
        case Stmt::Kind::macro:
            if (!define_macro(*stmt.macro, value)) return Flow::failed;
            set_name(*scope_, stmt.symbol, value);
            return Flow::normal;
        case Stmt::Kind::call_block: return run_call_block(stmt);
        case Stmt::Kind::filter_block: return run_filter_block(stmt);
        case Stmt::Kind::with: return run_with(stmt);
        case Stmt::Kind::scope: return run_in_scope(stmt.blocks[0]);
        case Stmt::Kind::break_loop: return Flow::broken;
        case Stmt::Kind::continue_loop: return Flow::continued;
    }
    return Flow::normal;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt) {
    for (size_t i = 0; i < stmt.exprs.size(); ++i) {
        Val condition;
        if (!eval(*stmt.exprs[i], condition)) return Flow::failed;
        if (is_true(condition)) return run_block(stmt.blocks[i]);
    }
    return stmt.blocks.size() > stmt.exprs.size() ? run_block(stmt.blocks.back()) : Flow::normal;
}

Interpreter::Flow Interpreter::run_in_scope(const Block& block) {
    Scope* const outer = scope_;
    scope_ = enter_scope(outer);
    const Flow flow = run_block(block);
    leave_scope(scope_, outer);
    return flow;
}

Interpreter::Flow Interpreter::run_set_block(const Stmt& stmt) {
    Scope* const outer = scope_;
    Val text;
    scope_ = enter_scope(outer);
    if (!run_captured(stmt.blocks[0], text)) return Flow::failed;
    leave_scope(scope_, outer);
    if (stmt.exprs[0] != nullptr) {
        Val filtered;
        if (!eval_filter(*stmt.exprs[0], &text, filtered)) return Flow::failed;
        text = filtered;
    }
    return assign(stmt.targets[0], text) ? Flow::normal : Flow::failed;
}

Interpreter::Flow Interpreter::run_filter_block(const Stmt& stmt) {
    Scope* const outer = scope_;
    Val text;
    Val filtered;
    scope_ = enter_scope(outer);
    if (!run_captured(stmt.blocks[0], text)) return Flow::failed;
    leave_scope(scope_, outer);
    return eval_filter(*stmt.exprs[0], &text, filtered) && write_value(filtered) ? Flow::normal : Flow::failed;
}

Interpreter::Flow Interpreter::run_call_block(const Stmt& stmt) {
    const Expr& call_expr = *stmt.exprs[0];
    Val caller;
    Val callee;
    Val result;
    CallArgs args;
    if (!define_macro(*stmt.macro, caller) || !eval(*call_expr.operands[0], callee) || !eval_args(call_expr.args, args))
        return Flow::failed;
    args.named.emplace_back("caller", caller);
    return call(callee, args, result) && write_value(result) ? Flow::normal : Flow::failed;
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt) {
    Scope* const outer = scope_;
    ValList values(stmt.exprs.size());
    for (size_t i = 0; i < values.size(); ++i) {
        if (!eval(*stmt.exprs[i], values[i])) return Flow::failed;
    }
    scope_ = enter_scope(outer);
    for (size_t i = 0; i < values.size(); ++i) {
        if (!assign(stmt.targets[i], values[i])) return Flow::failed;
    }
    const Flow flow = run_block(stmt.blocks[0]);
    leave_scope(scope_, outer);
    return flow;
}

bool Interpreter::define_macro(const Macro& definition, Val& out) {
    if (!charge_bytes(sizeof(MacroObject))) return false;
    capture(scope_);
    out = Val(own(std::make_unique<MacroObject>(definition, scope_)));
    return true;
}

// ---- Loops

bool Interpreter::fetch(LoopObject& loop, bool& has_item, Val& item) {
    has_item = true;
    if (loop.has_after) {
        loop.has_after = false;
        item = std::move(loop.after);
        return true;
    }
    while (loop.next < loop.items.size()) {
        item = loop.items[loop.next++];
        if (!loop.is_filtered) return true;
        Scope* const back_to = scope_;
        Val passes;
        scope_ = enter_scope(loop.outer);
        if (!assign(loop.stmt.targets[0], item) || !eval(*loop.stmt.exprs[1], passes)) return false;
        leave_scope(scope_, back_to);
        if (is_true(passes)) return true;
    }
    has_item = false;
    return true;
}

bool Interpreter::peek(LoopObject& loop) {
    if (loop.has_after) return true;
    bool has_item = false;
    Val item;
    if (!fetch(loop, has_item, item)) return false;
    loop.has_after = has_item;
    loop.after = std::move(item);
    return true;
}

bool Interpreter::loop_length(LoopObject& loop, int64_t& out) {
    if (loop.is_filtered) {
        ValList rest;
        const bool had_after = std::exchange(loop.has_after, false);
        for (;;) {
            bool has_item = false;
            Val item;
            if (!fetch(loop, has_item, item)) return false;
            if (!has_item) break;
            rest.push_back(std::move(item));
        }
        loop.has_after = had_after;
        loop.items = std::move(rest);
        loop.next = 0;
        loop.is_filtered = false;
    }
    out = loop.index0 + 1 + (loop.has_after ? 1 : 0) + static_cast<int64_t>(loop.items.size() - loop.next);
    return true;
}

bool Interpreter::loop_attribute(LoopObject& loop, std::string_view name, Val& out) {
    const auto hint = [](const char* message) { return Val::undefined({UndefinedReason::Kind::hint, message, {}}); };
    if (name == "index") {
        out = loop.index0 + 1;
    } else if (name == "index0") {
        out = loop.index0;
    } else if (name == "first") {
        out = loop.index0 == 0;
    } else if (name == "depth") {
        out = loop.depth0 + 1;
    } else if (name == "depth0") {
        out = loop.depth0;
    } else if (name == "previtem") {
        out = loop.has_previous ? loop.previous : hint("there is no previous item");
    } else if (name == "last" || name == "nextitem") {
        if (!peek(loop)) return false;
        if (name == "last") out = !loop.has_after;
        else out = loop.has_after ? loop.after : hint("there is no next item");
    } else if (name == "length" || name == "revindex" || name == "revindex0") {
        int64_t length = 0;
        if (!loop_length(loop, length)) return false;
        out = name == "length" ? length : name == "revindex" ? length - loop.index0 : length - loop.index0 - 1;
    } else {
        return get_attribute(*this, Val(&loop), name, out);
    }
    return true;
}

bool Interpreter::call_loop_method(LoopObject& loop, std::string_view name, const CallArgs& args, Val& out, bool& is_known) {
    is_known = name == "cycle" || name == "changed";
    if (!is_known) return true;
    if (name == "cycle") {
        if (args.positional.empty()) return fail_type("no items for cycling given");
        out = args.positional[static_cast<size_t>(loop.index0) % args.positional.size()];
        return true;
    }
    bool is_changed = !loop.has_changed_args || loop.changed_args.size() != args.positional.size();
    for (size_t i = 0; !is_changed && i < args.positional.size(); ++i) {
        if (!charge_comparison(loop.changed_args[i], args.positional[i])) return false;
        is_changed = !equals(loop.changed_args[i], args.positional[i]);
    }
    loop.has_changed_args = true;
    loop.changed_args = args.positional;
    out = is_changed;
    return true;
}

bool Interpreter::run_loop(const Stmt& stmt, const Val& iterable, Scope* outer, int64_t depth0) {
    if (!charge_bytes(sizeof(LoopObject))) return false;
    LoopObject* loop = own(std::make_unique<LoopObject>(stmt));
    loop->outer = outer;
    loop->depth0 = depth0;
    loop->is_filtered = stmt.exprs[1] != nullptr;
    if (!iterate(*this, iterable, loop->items)) return false;
    for (;;) {
        bool has_item = false;
        Val item;
        if (!fetch(*loop, has_item, item)) return false;
        if (!has_item) break;
        loop->has_previous = ++loop->index0 > 0;
        loop->previous = std::exchange(loop->current, item);
        scope_ = enter_scope(outer);
        set_name(*scope_, kSymbolLoop, Val(static_cast<Object*>(loop)));
        if (!assign(stmt.targets[0], item)) return false;
        const Flow flow = run_block(stmt.blocks[0]);
        leave_scope(scope_, outer);
        if (flow == Flow::failed) return false;
        if (flow == Flow::broken) break;
    }
    if (loop->index0 >= 0 || stmt.blocks.size() < 2) return true;
    return run_in_scope(stmt.blocks[1]) != Flow::failed;
}

}  // namespace espalier::text::jinja
