// `espalier eval iou`: tool calls in, inline scores out, one JSON object a line. Blank lines are skipped.
#pragma once

#include <iosfwd>

#include "base/result.h"

namespace espalier::probe {

// {"id", "recorded": [tool calls], "produced": {"tool_calls": …} or null} -> {"id", "score"}; score is null when the recorded
// calls hold no action, so that the turn would not be scored. Other members are ignored. Errors: invalid_input with the line
// number; the lines before it are written.
Status run_iou(std::istream& in, std::ostream& out);

}  // namespace espalier::probe
