// Tokens to syntax tree: Jinja's grammar for what a chat template may contain. Constructs that need other templates (include,
// import, extends, block) or change the output mode (autoescape) are refused by name.
#pragma once

#include <memory>
#include <string_view>
#include <variant>

#include "text/jinja/ast.h"
#include "text/jinja/errors.h"

namespace espalier::text::jinja {

std::variant<std::unique_ptr<const SyntaxTree>, TemplateError> parse_template(std::string_view source);

}  // namespace espalier::text::jinja
