// `espalier eval bfcl --originals FILE`: answers in, verdicts out, one JSON object a line. Blank lines are skipped.
#pragma once

#include <iosfwd>
#include <string>

#include "base/result.h"

namespace espalier::probe {

// originals: JSON lines {"id", "subset", "functions", "ground_truth"}.
// {"id", "original", "content", "tool_calls"} -> {"id", "score", "error_type"}: score 1.0 or 0.0, or null where the reference
// scorer raises an exception. Other members are ignored. Errors: invalid_input with the line number; the lines before it are
// written.
Status run_bfcl_verdicts(const std::string& originals_path, std::istream& in, std::ostream& out);

}  // namespace espalier::probe
