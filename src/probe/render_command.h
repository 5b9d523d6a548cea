// `espalier eval render`: the bare chat template on JSON lines, as Hugging Face's apply_chat_template runs it. No history repair:
// that happens when a request is built (text/chat_request.h).
#pragma once

#include <iosfwd>

#include "base/result.h"
#include "text/chat_template.h"

namespace espalier::probe {

// {"messages": …, "tools": …, "kwargs": {…}} -> {"rendered": text} or {"error": text, "error_kind": kind, "line": n}. A member
// that is null counts as absent. error is the template's own text for raise_exception. Numbers and key order are kept as written.
// Blank lines are skipped. Errors: invalid_input with the line number for a line of another shape; the lines before it are
// written.
Status run_render(const text::ChatTemplate& chat_template, std::istream& in, std::ostream& out);

}  // namespace espalier::probe
