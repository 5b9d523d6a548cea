// Statements and the parser's frame.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/parser_impl.h"

namespace espalier::text::jinja {
namespace {

// Each level is some ten C++ calls.
constexpr int kNestingMax = 100;

constexpr std::string_view kUnsupportedTags[] = {"extends", "include", "import", "from", "block", "autoescape", "endblock"};

std::string join_quoted(const std::vector<std::string_view>& names) {
    std::string out;
    for (const std::string_view name : names) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", name);
    return out;
}

}  // namespace

Parser::Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), tree_(std::make_unique<SyntaxTree>()) {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) symbol_of(name);
}

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kNestingMax)
        parser_.stream_.fail(fmt::format("the template nests deeper than {} levels", kNestingMax));
}

std::variant<std::unique_ptr<const SyntaxTree>, TemplateError> Parser::run() {
    tree_->root = parse_block({});
    if (!stream_.has_failed()) check_unresolved();
    if (stream_.has_failed()) return stream_.error();
    return std::unique_ptr<const SyntaxTree>(std::move(tree_));
}

void Parser::check_unresolved() {
    for (const auto& [expr, is_soft] : unresolved_) {
        if (is_soft) continue;
        const bool is_filter = expr->kind == Expr::Kind::filter;
        TemplateError error{ErrorKind::syntax, fmt::format("No {} named '{}'.", is_filter ? "filter" : "test", expr->name),
                            expr->line};
        if (is_filter && is_unsupported_filter(expr->name)) {
            error.kind = ErrorKind::unsupported;
            error.message = fmt::format("the filter '{}' is not supported", expr->name);
        }
        return stream_.fail_at(std::move(error));
    }
}

int Parser::symbol_of(const std::string& name) {
    const auto [place, is_new] = symbols_.emplace(name, static_cast<int>(symbols_.size()));
    if (is_new) tree_->symbols.push_back(name);
    return place->second;
}

// Macros that mention these names accept what they hold.
void Parser::note_name(const std::string& name) {
    for (Macro* macro : open_macros_) {
        macro->uses_caller = macro->uses_caller || name == "caller";
        macro->uses_varargs = macro->uses_varargs || name == "varargs";
        macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
    }
}

Stmt* Parser::make_stmt(Stmt::Kind kind) {
    tree_->stmts.push_back(std::make_unique<Stmt>());
    Stmt* stmt = tree_->stmts.back().get();
    stmt->kind = kind;
    stmt->line = stream_.current().line;
    return stmt;
}

// Statements until a tag of that name, which is left as the current token; to the end of the template if there is none to wait
// for.
Block Parser::parse_block(const EndNames& end_names) {
    const Nesting nesting(*this);
    wanted_ends_.push_back(end_names);
    Block block;
    while (!stream_.is(Token::Kind::end)) {
        if (stream_.is(Token::Kind::data)) {
            Stmt* stmt = make_stmt(Stmt::Kind::text);
            stmt->text = stream_.next().text;
            block.push_back(stmt);
        } else if (stream_.is(Token::Kind::variable_begin)) {
            stream_.next();
            Stmt* stmt = make_stmt(Stmt::Kind::output);
            stmt->exprs.push_back(parse_tuple(Condexpr::yes));
            stream_.expect(Token::Kind::variable_end);
            block.push_back(stmt);
        } else {
            stream_.expect(Token::Kind::block_begin);
            const bool ends =
                std::any_of(end_names.begin(), end_names.end(), [&](std::string_view name) { return stream_.is_name(name); });
            if (ends) break;
            block.push_back(parse_statement());
            stream_.expect(Token::Kind::block_end);
        }
    }
    wanted_ends_.pop_back();
    if (!end_names.empty() && stream_.is(Token::Kind::end) && !stream_.has_failed()) {
        wanted_ends_.push_back(end_names);
        fail_unknown_tag(nullptr);
        wanted_ends_.pop_back();
    }
    return block;
}

// The rest of a tag, and what follows it up to one of the end tags.
Block Parser::parse_body(const EndNames& end_names) {
    stream_.skip_op(":");
    stream_.expect(Token::Kind::block_end);
    return parse_block(end_names);
}

Stmt* Parser::parse_statement() {
    if (!stream_.is(Token::Kind::name)) {
        stream_.fail("tag name expected");
        return make_stmt(Stmt::Kind::text);
    }
    const std::string name = stream_.current().text;
    if (std::find(std::begin(kUnsupportedTags), std::end(kUnsupportedTags), name) != std::end(kUnsupportedTags)) {
        stream_.fail(ErrorKind::unsupported, fmt::format("the tag '{}' is not supported", name));
        return make_stmt(Stmt::Kind::text);
    }
    open_tags_.push_back(name);
    Stmt* stmt = nullptr;
    if (name == "if") stmt = parse_if();
    else if (name == "for") stmt = parse_for();
    else if (name == "set") stmt = parse_set();
    else if (name == "macro") stmt = parse_macro();
    else if (name == "call") stmt = parse_call_block();
    else if (name == "filter") stmt = parse_filter_block();
    else if (name == "with") stmt = parse_with();
    else if (name == "generation") stmt = parse_scope("endgeneration");
    else if (name == "break") stmt = parse_loop_control(Stmt::Kind::break_loop);
    else if (name == "continue") stmt = parse_loop_control(Stmt::Kind::continue_loop);
    else if (name == "print") {
        stmt = make_stmt(Stmt::Kind::output);
        stream_.next();
        do stmt->exprs.push_back(parse_expression());
        while (stream_.skip_op(","));
    }
    open_tags_.pop_back();
    if (stmt != nullptr) return stmt;
    fail_unknown_tag(&name);
    return make_stmt(Stmt::Kind::text);
}

void Parser::fail_unknown_tag(const std::string* name) {
    std::string message = name == nullptr ? "Unexpected end of template." : fmt::format("Encountered unknown tag '{}'.", *name);
    if (!wanted_ends_.empty() && !wanted_ends_.back().empty()) {
        const std::string looking = join_quoted(wanted_ends_.back());
        const bool is_wanted_outside =
            name != nullptr && std::any_of(wanted_ends_.begin(), wanted_ends_.end(), [&](const EndNames& names) {
                return std::find(names.begin(), names.end(), *name) != names.end();
            });
        message +=
            is_wanted_outside
                ? fmt::format(" You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for {}.",
                              looking)
                : fmt::format(" Jinja was looking for the following tags: {}.", looking);
    }
    if (!open_tags_.empty()) message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
    stream_.fail(std::move(message));
}

Stmt* Parser::parse_if() {
    Stmt* stmt = make_stmt(Stmt::Kind::if_chain);
    const bool was_soft = is_soft_;
    is_soft_ = true;
    do {
        stream_.next();  // if, elif
        stmt->exprs.push_back(parse_tuple(Condexpr::no));
        stmt->blocks.push_back(parse_body({"elif", "else", "endif"}));
    } while (stream_.is_name("elif"));
    if (stream_.skip_name("else")) stmt->blocks.push_back(parse_body({"endif"}));
    stream_.next();
    is_soft_ = was_soft;
    return stmt;
}

Stmt* Parser::parse_for() {
    Stmt* stmt = make_stmt(Stmt::Kind::for_loop);
    stream_.next();
    stmt->targets.push_back(parse_target("in"));
    stream_.expect_name("in");
    stmt->exprs.push_back(parse_tuple(Condexpr::no, "recursive"));
    stmt->exprs.push_back(stream_.skip_name("if") ? parse_expression() : nullptr);
    stmt->is_recursive = stream_.skip_name("recursive");
    const bool was_soft = is_soft_;
    is_soft_ = false;
    ++loops_;
    stmt->blocks.push_back(parse_body({"endfor", "else"}));
    --loops_;
    if (stream_.skip_name("else")) stmt->blocks.push_back(parse_body({"endfor"}));
    is_soft_ = was_soft;
    stream_.next();
    return stmt;
}

Stmt* Parser::parse_loop_control(Stmt::Kind kind) {
    Stmt* stmt = make_stmt(kind);
    if (loops_ == 0) stream_.fail(fmt::format("'{}' outside loop", stream_.current().text));
    stream_.next();
    return stmt;
}

Stmt* Parser::parse_set() {
    Stmt* stmt = make_stmt(Stmt::Kind::set);
    stream_.next();
    stmt->targets.push_back(parse_target({}));
    if (stream_.skip_op("=")) {
        stmt->exprs.push_back(parse_tuple(Condexpr::yes));
        return stmt;
    }
    stmt->kind = Stmt::Kind::set_block;
    stmt->exprs.push_back(stream_.skip_op("|") ? parse_filter_chain() : nullptr);
    stmt->blocks.push_back(parse_body({"endset"}));
    stream_.next();
    return stmt;
}

void Parser::parse_signature(Macro& macro) {
    stream_.expect_op("(");
    bool has_fallback = false;
    while (!stream_.is_op(")") && !stream_.has_failed()) {
        if (!macro.parameters.empty()) stream_.expect_op(",");
        Macro::Parameter parameter;
        parameter.name = stream_.expect(Token::Kind::name).text;
        parameter.symbol = symbol_of(parameter.name);
        if (stream_.skip_op("=")) {
            parameter.fallback = parse_expression();
            has_fallback = true;
        } else if (has_fallback) {
            stream_.fail("non-default argument follows default argument");
        }
        macro.parameters.push_back(std::move(parameter));
    }
    stream_.expect_op(")");
}

Block Parser::parse_macro_body(Macro& macro, std::string_view end_name) {
    const bool was_soft = is_soft_;
    const int loops = loops_;
    is_soft_ = false;
    loops_ = 0;
    open_macros_.push_back(&macro);
    Block body = parse_body({end_name});
    open_macros_.pop_back();
    loops_ = loops;
    is_soft_ = was_soft;
    stream_.next();
    return body;
}

Stmt* Parser::parse_macro() {
    Stmt* stmt = make_stmt(Stmt::Kind::macro);
    stmt->macro = std::make_unique<Macro>();
    stream_.next();
    stmt->macro->name = stream_.expect(Token::Kind::name).text;
    stmt->symbol = symbol_of(stmt->macro->name);
    parse_signature(*stmt->macro);
    stmt->macro->body = parse_macro_body(*stmt->macro, "endmacro");
    return stmt;
}

Stmt* Parser::parse_call_block() {
    Stmt* stmt = make_stmt(Stmt::Kind::call_block);
    stmt->macro = std::make_unique<Macro>();
    stmt->macro->name = "caller";
    stream_.next();
    if (stream_.is_op("(")) parse_signature(*stmt->macro);
    stmt->exprs.push_back(parse_expression());
    if (stmt->exprs[0]->kind != Expr::Kind::call) stream_.fail("expected call");
    stmt->macro->body = parse_macro_body(*stmt->macro, "endcall");
    return stmt;
}

Stmt* Parser::parse_filter_block() {
    Stmt* stmt = make_stmt(Stmt::Kind::filter_block);
    stream_.next();
    stmt->exprs.push_back(parse_filter_chain());
    stmt->blocks.push_back(parse_body({"endfilter"}));
    stream_.next();
    return stmt;
}

Stmt* Parser::parse_with() {
    Stmt* stmt = make_stmt(Stmt::Kind::with);
    stream_.next();
    while (!stream_.is(Token::Kind::block_end) && !stream_.has_failed()) {
        if (!stmt->targets.empty()) stream_.expect_op(",");
        stmt->targets.push_back(parse_target({}));
        stream_.expect_op("=");
        stmt->exprs.push_back(parse_expression());
    }
    stmt->blocks.push_back(parse_body({"endwith"}));
    stream_.next();
    return stmt;
}

Stmt* Parser::parse_scope(std::string_view end_name) {
    Stmt* stmt = make_stmt(Stmt::Kind::scope);
    stream_.next();
    stmt->blocks.push_back(parse_body({end_name}));
    stream_.next();
    return stmt;
}

Target Parser::parse_single_target() {
    const Nesting nesting(*this);
    Target target;
    if (stream_.skip_op("(")) {
        target = parse_target({});
        stream_.expect_op(")");
        return target;
    }
    static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (!stream_.is(Token::Kind::name)) {
        stream_.fail(fmt::format("expected a name to assign to, got '{}'", describe(stream_.current())));
        return target;
    }
    const std::string name = stream_.next().text;
    if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants))
        stream_.fail("can't assign to 'const'");
    target.symbol = symbol_of(name);
    if (stream_.skip_op(".")) {
        target.kind = Target::Kind::namespace_attribute;
        target.name = stream_.expect(Token::Kind::name).text;
    }
    return target;
}

Target Parser::parse_target(std::string_view end_name) {
    Target first = parse_single_target();
    if (!stream_.is_op(",") || stream_.has_failed()) return first;
    Target tuple;
    tuple.kind = Target::Kind::tuple;
    tuple.items.push_back(std::move(first));
    while (stream_.skip_op(",")) {
        const bool ends = stream_.is_op(")") || stream_.is_op("=") || (!end_name.empty() && stream_.is_name(end_name));
        if (ends) break;
        tuple.items.push_back(parse_single_target());
    }
    return tuple;
}

std::variant<std::unique_ptr<const SyntaxTree>, TemplateError> parse_template(std::string_view source) {
    auto tokens = lex(source);
    if (auto* error = std::get_if<TemplateError>(&tokens)) return *error;
    return Parser(std::move(std::get<std::vector<Token>>(tokens))).run();
}

}  // namespace espalier::text::jinja
