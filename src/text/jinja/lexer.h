// Template source to tokens, with Jinja's white space rules already applied to the text between the tags:
// trim_blocks (a tag eats the newline after it), lstrip_blocks (a block tag eats the blanks before it on its line), explicit
// '-' and '+' marks, and one final newline dropped.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/jinja/errors.h"

namespace espalier::text::jinja {

struct Token {
    enum class Kind { data, variable_begin, variable_end, block_begin, block_end, name, string, integer, number, op, end };
    Kind kind = Kind::end;
    std::string text;  // data, decoded string, name, operator, digits (integers: decimal)
    int line = 1;
};

// The last token is `end`.
std::variant<std::vector<Token>, TemplateError> lex(std::string_view source);

}  // namespace espalier::text::jinja
