// Expressions and calls.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/interpreter.h"

namespace espalier::text::jinja {

bool Interpreter::eval(const Expr& expr, Val& out) {
    if (expr.kind == Expr::Kind::constant) {
        out = expr.value;
        return true;
    }
    if (expr.line != 0) set_line(expr.line);
    if (!charge_steps(1)) return false;
    if (++depth_ > limits().depth) {
        return fail(ErrorKind::limit, fmt::format("the template nests or recurses deeper than {} levels", limits().depth));
    }
    const bool is_fine = eval_node(expr, out);
    --depth_;
    return is_fine;
}

bool Interpreter::eval_node(const Expr& expr, Val& out) {
    switch (expr.kind) {
        case Expr::Kind::constant: out = expr.value; return true;
        case Expr::Kind::name: return look_up(expr.symbol, out);
        case Expr::Kind::list:
        case Expr::Kind::tuple: return eval_sequence(expr, out);
        case Expr::Kind::dict: return eval_dict(expr, out);
        case Expr::Kind::attribute: return eval_attribute(expr, out);
        case Expr::Kind::subscript: return eval_subscript(expr, out);
        case Expr::Kind::slice: return eval_slice(expr, out);
        case Expr::Kind::call: return eval_call(expr, out);
        case Expr::Kind::filter: return eval_filter(expr, nullptr, out);
        case Expr::Kind::test: return eval_test(expr, out);
        case Expr::Kind::negation:
        case Expr::Kind::minus:
        case Expr::Kind::plus: return eval_sign(expr, out);
        case Expr::Kind::arithmetic: return eval_arithmetic(expr, out);
        case Expr::Kind::concat: return eval_concat(expr, out);
        case Expr::Kind::comparison: return eval_comparison(expr, out);
        case Expr::Kind::logical_and:
        case Expr::Kind::logical_or: return eval_logical(expr, out);
        case Expr::Kind::conditional: return eval_conditional(expr, out);
    }
    return true;
}

bool Interpreter::eval_sequence(const Expr& expr, Val& out) {
    ValList items(expr.operands.size());
    for (size_t i = 0; i < items.size(); ++i) {
        if (!eval(*expr.operands[i], items[i])) return false;
    }
    return make_list(std::move(items), expr.kind == Expr::Kind::list ? ListObject::Kind::list : ListObject::Kind::tuple, out);
}

bool Interpreter::eval_dict(const Expr& expr, Val& out) {
    DictObject dict;
    for (size_t i = 0; i < expr.operands.size(); i += 2) {
        Val key;
        Val value;
        if (!eval(*expr.operands[i], key) || !eval(*expr.operands[i + 1], value)) return false;
        if (!is_hashable(key)) return fail_type(fmt::format("unhashable type: '{}'", type_name(key)));
        dict.put(std::move(key), std::move(value));
    }
    return make_dict(std::move(dict), out);
}

bool Interpreter::attribute_of(const Val& object, std::string_view name, Val& out) {
    Object* const pointer = object.as_object();
    if (pointer != nullptr && pointer->kind == Object::Kind::loop)
        return loop_attribute(*static_cast<LoopObject*>(pointer), name, out);
    if (pointer != nullptr && pointer->kind == Object::Kind::macro && name == "name") {
        out = Val(static_cast<MacroObject*>(pointer)->definition.name);
        return true;
    }
    return get_attribute(*this, object, name, out);
}

bool Interpreter::eval_attribute(const Expr& expr, Val& out) {
    Val object;
    return eval(*expr.operands[0], object) && attribute_of(object, expr.name, out);
}

bool Interpreter::eval_subscript(const Expr& expr, Val& out) {
    Val object;
    Val index;
    if (!eval(*expr.operands[0], object) || !eval(*expr.operands[1], index) || !get_item(*this, object, index, out)) return false;
    if (!out.is_undefined() || !index.is_string() || (object.as_dict() != nullptr && object.as_dict()->find(index) != nullptr))
        return true;
    return attribute_of(object, *index.as_string(), out);
}

bool Interpreter::eval_slice(const Expr& expr, Val& out) {
    Val object;
    SliceBounds bounds;
    if (!eval(*expr.operands[0], object)) return false;
    Val* const parts[] = {&bounds.start, &bounds.stop, &bounds.step};
    for (size_t i = 0; i < 3; ++i) {
        const Expr* part = expr.operands[i + 1];
        if (part != nullptr && !eval(*part, *parts[i])) return false;
    }
    return get_slice(*this, object, bounds, out);
}

bool Interpreter::eval_args(const std::vector<Argument>& args, CallArgs& out) {
    for (const Argument& argument : args) {
        Val value;
        if (!eval(*argument.value, value)) return false;
        if (argument.kind == Argument::Kind::positional) {
            out.positional.push_back(std::move(value));
        } else if (argument.kind == Argument::Kind::named) {
            out.named.emplace_back(argument.name, std::move(value));
        } else if (argument.kind == Argument::Kind::spread_list) {
            ValList items;
            if (!iterate(*this, value, items)) return false;
            out.positional.insert(out.positional.end(), items.begin(), items.end());
        } else {
            const DictObject* dict = value.as_dict();
            if (dict == nullptr) return fail_type(fmt::format("argument after ** must be a mapping, not {}", type_name(value)));
            for (const auto& [key, member] : dict->members) {
                if (!key.is_string()) return fail_type("keywords must be strings");
                out.named.emplace_back(*key.as_string(), member);
            }
        }
    }
    return true;
}

bool Interpreter::eval_call(const Expr& expr, Val& out) {
    const Expr& callee_expr = *expr.operands[0];
    Val callee;
    CallArgs args;
    if (callee_expr.kind != Expr::Kind::attribute) {
        return eval(callee_expr, callee) && eval_args(expr.args, args) && call(callee, args, out);
    }
    Val self;
    if (!eval(*callee_expr.operands[0], self)) return false;
    const std::string& name = callee_expr.name;
    if (method_kind(self, name) == MethodKind::callable) {
        return eval_args(expr.args, args) && call_method(*this, self, name, args, out);
    }
    Object* const object = self.as_object();
    if (object != nullptr && object->kind == Object::Kind::loop) {
        bool is_known = false;
        if (!eval_args(expr.args, args) || !call_loop_method(*static_cast<LoopObject*>(object), name, args, out, is_known))
            return false;
        if (is_known) return true;
        args = {};
    }
    return attribute_of(self, name, callee) && eval_args(expr.args, args) && call(callee, args, out);
}

bool Interpreter::call(const Val& callee, const CallArgs& args, Val& out) {
    if (callee.is_undefined()) return fail_undefined(callee);
    Object* const object = callee.as_object();
    if (object == nullptr) return fail_type(fmt::format("'{}' object is not callable", type_name(callee)));
    switch (object->kind) {
        case Object::Kind::function: return static_cast<FunctionObject*>(object)->function(*this, args, out);
        case Object::Kind::macro: return call_macro(*static_cast<MacroObject*>(object), args, out);
        case Object::Kind::method: {
            const auto& method = *static_cast<MethodObject*>(object);
            return call_method(*this, method.self, method.name, args, out);
        }
        case Object::Kind::joiner: {
            auto& joiner = *static_cast<JoinerObject*>(object);
            out = std::exchange(joiner.is_used, true) ? joiner.separator : Val("");
            return true;
        }
        case Object::Kind::loop: break;
        default: return fail_type(fmt::format("'{}' object is not callable", type_name(callee)));
    }
    const auto& loop = *static_cast<LoopObject*>(object);
    if (!loop.stmt.is_recursive) return fail_type("The loop must have the 'recursive' marker to be called recursively.");
    if (args.positional.size() != 1) return fail_type("a recursive loop takes one argument");
    std::string text;
    std::string* const outer_out = std::exchange(out_, &text);
    Scope* const outer_scope = std::exchange(scope_, loop.outer);
    if (!run_loop(loop.stmt, args.positional[0], loop.outer, loop.depth0 + 1)) return false;
    scope_ = outer_scope;
    out_ = outer_out;
    return make_text(std::move(text), out);
}

bool Interpreter::bind_macro(const MacroObject& macro, const CallArgs& args, Scope& scope) {
    const Macro& definition = macro.definition;
    const size_t n = definition.parameters.size();
    std::vector<const Val*> given(n, nullptr);
    for (size_t i = 0; i < std::min(n, args.positional.size()); ++i) given[i] = &args.positional[i];
    DictObject extra_named;
    Val caller = Val::undefined({UndefinedReason::Kind::hint, "No caller defined", {}});
    for (const auto& [name, value] : args.named) {
        const auto same = [&name = name](const Macro::Parameter& parameter) { return parameter.name == name; };
        const auto found = std::find_if(definition.parameters.begin(), definition.parameters.end(), same);
        const auto i = static_cast<size_t>(found - definition.parameters.begin());
        if (i < n && given[i] == nullptr) given[i] = &value;
        else if (name == "caller" && definition.uses_caller) caller = value;
        else if (definition.uses_kwargs) extra_named.put(Val(name), value);
        else if (name == "caller")
            return fail_type(
                fmt::format("macro '{}' was invoked with two values for the special caller argument. This is most likely a bug.",
                            definition.name));
        else return fail_type(fmt::format("macro '{}' takes no keyword argument '{}'", definition.name, name));
    }
    if (args.positional.size() > n && !definition.uses_varargs) {
        return fail_type(fmt::format("macro '{}' takes not more than {} argument(s)", definition.name, n));
    }
    if (definition.uses_caller) set_name(scope, kSymbolCaller, caller);
    if (definition.uses_kwargs) {
        Val kwargs;
        if (!make_dict(std::move(extra_named), kwargs)) return false;
        set_name(scope, kSymbolKwargs, kwargs);
    }
    if (definition.uses_varargs) {
        Val varargs;
        const auto begin = args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(n, args.positional.size()));
        if (!make_list(ValList(begin, args.positional.end()), ListObject::Kind::tuple, varargs)) return false;
        set_name(scope, kSymbolVarargs, varargs);
    }
    for (size_t i = 0; i < n; ++i) {
        const Macro::Parameter& parameter = definition.parameters[i];
        Val value;
        if (given[i] != nullptr) value = *given[i];
        else if (parameter.fallback == nullptr) {
            value =
                Val::undefined({UndefinedReason::Kind::hint, fmt::format("parameter '{}' was not provided", parameter.name), {}});
        } else if (!eval(*parameter.fallback, value)) {
            return false;
        }
        set_name(scope, parameter.symbol, value);
    }
    return true;
}

bool Interpreter::call_macro(const MacroObject& macro, const CallArgs& args, Val& out) {
    Scope* const outer = scope_;
    const int line = this->line();
    scope_ = enter_scope(macro.scope);
    if (!bind_macro(macro, args, *scope_) || !run_captured(macro.definition.body, out)) return false;
    leave_scope(scope_, outer);
    set_line(line);
    return true;
}

bool Interpreter::eval_filter(const Expr& expr, const Val* input, Val& out) {
    Val value;
    CallArgs args;
    // In a filter block the innermost filter of the chain has no operand: its input is the block's text.
    if (expr.operands.empty()) value = *input;
    else if (input != nullptr ? !eval_filter(*expr.operands[0], input, value) : !eval(*expr.operands[0], value)) return false;
    if (!eval_args(expr.args, args)) return false;
    if (expr.filter != nullptr) return expr.filter(*this, value, args, out);
    if (is_unsupported_filter(expr.name))
        return fail(ErrorKind::unsupported, fmt::format("the filter '{}' is not supported", expr.name));
    return fail(ErrorKind::runtime, fmt::format("No filter named '{}' found.", expr.name));
}

bool Interpreter::eval_test(const Expr& expr, Val& out) {
    Val value;
    CallArgs args;
    bool result = false;
    if (!eval(*expr.operands[0], value) || !eval_args(expr.args, args)) return false;
    if (expr.test == nullptr) return fail(ErrorKind::runtime, fmt::format("No test named '{}' found.", expr.name));
    if (!expr.test(*this, value, args, result)) return false;
    out = result;
    return true;
}

bool Interpreter::eval_sign(const Expr& expr, Val& out) {
    Val value;
    if (!eval(*expr.operands[0], value)) return false;
    if (expr.kind == Expr::Kind::minus) return negate(*this, value, out);
    if (expr.kind == Expr::Kind::negation) {
        out = !is_true(value);
        return true;
    }
    if (value.is_undefined()) return fail_undefined(value);
    if (!is_number(value)) return fail_type(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
    if (value.as_bool() != nullptr) return arithmetic(*this, BinaryOp::add, value, Val(int64_t{0}), out);
    out = value;
    return true;
}

bool Interpreter::eval_arithmetic(const Expr& expr, Val& out) {
    if (!eval(*expr.operands[0], out)) return false;
    for (size_t i = 1; i < expr.operands.size(); ++i) {
        Val right;
        Val result;
        if (!eval(*expr.operands[i], right)) return false;
        if (!arithmetic(*this, expr.binary_ops[i - 1], out, right, result)) return false;
        out = std::move(result);
    }
    return true;
}

bool Interpreter::eval_concat(const Expr& expr, Val& out) {
    std::string text;
    for (const Expr* operand : expr.operands) {
        Val value;
        if (!eval(*operand, value) || !append_str(*this, text, value)) return false;
    }
    out = Val(std::move(text));
    return true;
}

bool Interpreter::eval_comparison(const Expr& expr, Val& out) {
    Val left;
    if (!eval(*expr.operands[0], left)) return false;
    bool holds = true;
    for (size_t i = 1; holds && i < expr.operands.size(); ++i) {
        Val right;
        if (!eval(*expr.operands[i], right) || !compare(*this, expr.compare_ops[i - 1], left, right, holds)) return false;
        left = std::move(right);
    }
    out = holds;
    return true;
}

bool Interpreter::eval_logical(const Expr& expr, Val& out) {
    const bool stops_at = expr.kind == Expr::Kind::logical_or;
    for (const Expr* operand : expr.operands) {
        if (!eval(*operand, out)) return false;
        if (is_true(out) == stops_at) return true;
    }
    return true;
}

bool Interpreter::eval_conditional(const Expr& expr, Val& out) {
    Val condition;
    if (!eval(*expr.operands[1], condition)) return false;
    if (is_true(condition)) return eval(*expr.operands[0], out);
    if (expr.operands[2] != nullptr) return eval(*expr.operands[2], out);
    out = Val::undefined(
        {UndefinedReason::Kind::hint,
         fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line),
         {}});
    return true;
}

}  // namespace espalier::text::jinja
