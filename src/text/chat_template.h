// Renders a chat template (the Jinja subset in text/jinja/) exactly as Hugging Face's apply_chat_template does:
// trim_blocks, lstrip_blocks, loop controls, Python-exact tojson, raise_exception.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "text/chat_value.h"
#include "text/jinja/errors.h"

namespace espalier::text {

class ChatTemplate {
public:
    // Errors: invalid_input with line number for a syntax error, unsupported for a construct outside the subset (named).
    static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source);

    ~ChatTemplate();
    ChatTemplate(const ChatTemplate&) = delete;
    ChatTemplate& operator=(const ChatTemplate&) = delete;

    // Renders with the given context variables (messages, tools, add_generation_prompt, enable_thinking, …; absent = undefined).
    // Errors: invalid_input; the message is the template's own text for raise_exception, else what went wrong with the line.
    // exhausted when the step or output limit is hit. Thread safe.
    Result<std::string> render(const Value& context) const;
    // The same with the kind of error, its bare message and its line apart: for `eval render` and the golden tests.
    std::variant<std::string, jinja::TemplateError> render_or_error(const Value& context) const;

    const std::string& source() const;

private:
    ChatTemplate();
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::text
