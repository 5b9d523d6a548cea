// Recognising tags at the start of text that may still be growing. Every answer is final: `partial` means that some continuation
// would decide otherwise, so a decision never depends on how the text was cut.
#pragma once

#include <string>
#include <string_view>

#include "text/output_parser_tools.h"

namespace espalier::text {

enum class Fit { no, partial, yes };

// `literal` at `pos`.
Fit match_literal(std::string_view text, size_t pos, std::string_view literal);

struct TagMatch {
    Fit fit = Fit::no;
    size_t end = 0;  // after the tag
    std::string name;
    const char* repair = nullptr;  // kind, if the tag was not spelled as it should be
    bool is_self_closing = false;
    bool has_value_in_tag = false;  // <parameter=key=value
    bool is_element_pair = false;   // <function>NAME</function>, arguments follow
};

// <function=NAME>, also <function=NAME/>, <function="NAME">, <function name="NAME">, a missing '>' before a line break or the
// next tag, and <function>NAME</function> if `in_wrapper`. Undeclared names count only in a wrapper and without white space in
// them.
TagMatch match_function_header(std::string_view text, size_t pos, const DeclaredTools& tools, bool in_wrapper);

// <parameter=KEY>, with the same variants, and <parameter=KEY=VALUE of a declared key. `tool` may be null.
TagMatch match_parameter_header(std::string_view text, size_t pos, const DeclaredTool* tool);

// <KEY> where KEY is a declared parameter.
TagMatch match_element(std::string_view text, size_t pos, const DeclaredTool* tool);

}  // namespace espalier::text
