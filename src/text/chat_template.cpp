#include "text/chat_template.h"

#include <fmt/format.h>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace espalier::text {
namespace {

Error to_error(const jinja::TemplateError& error) {
    if (error.kind == jinja::ErrorKind::raise_exception) return invalid_input(error.message);
    std::string message = error.line > 0 ? fmt::format("chat template line {}: {}", error.line, error.message)
                                         : fmt::format("chat template: {}", error.message);
    if (error.kind == jinja::ErrorKind::unsupported) return unsupported(std::move(message));
    if (error.kind == jinja::ErrorKind::limit) return exhausted(std::move(message));
    return invalid_input(std::move(message));
}

}  // namespace

struct ChatTemplate::Impl {
    std::string source;
    std::unique_ptr<const jinja::SyntaxTree> tree;
};

ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source) {
    auto parsed = jinja::parse_template(source);
    if (const auto* error = std::get_if<jinja::TemplateError>(&parsed)) return to_error(*error);
    std::shared_ptr<ChatTemplate> made(new ChatTemplate());
    made->impl_ = std::make_unique<Impl>();
    made->impl_->source = std::string(source);
    made->impl_->tree = std::move(std::get<0>(parsed));
    return std::shared_ptr<const ChatTemplate>(std::move(made));
}

std::variant<std::string, jinja::TemplateError> ChatTemplate::render_or_error(const Value& context) const {
    jinja::Interpreter interpreter(*impl_->tree, jinja::Limits{});
    std::string out;
    if (!interpreter.render(context, out)) return interpreter.error();
    return out;
}

Result<std::string> ChatTemplate::render(const Value& context) const {
    auto outcome = render_or_error(context);
    if (const auto* error = std::get_if<jinja::TemplateError>(&outcome)) return to_error(*error);
    return std::get<std::string>(std::move(outcome));
}

const std::string& ChatTemplate::source() const {
    return impl_->source;
}

}  // namespace espalier::text
