// What can go wrong in a template.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text::jinja {

enum class ErrorKind {
    syntax,           // the template's source
    unsupported,      // a construct outside the subset, named
    raise_exception,  // the template refused; its own words
    undefined,        // use of something that is not there
    type_error,
    value_error,
    zero_division,
    overflow,
    attribute_error,
    index_error,
    key_error,
    assertion_error,
    filter_argument,
    security,  // what the sandbox forbids
    runtime,   // other errors of the template engine
    limit,     // steps, output or depth
};

// "raise_exception", "undefined", "syntax", "TypeError", …: as the golden files spell them.
std::string_view to_string(ErrorKind kind);

struct TemplateError {
    ErrorKind kind = ErrorKind::runtime;
    std::string message;
    int line = 0;  // in the template; 0 if none applies
};

}  // namespace espalier::text::jinja
