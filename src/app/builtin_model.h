// The model that comes with the program, used where no MODEL is given.
#pragma once

#include <string>

#include "base/result.h"

namespace espalier::app {

// `given`, or where that is empty the folder of the built-in model: share/espalier/model of the installation, or demo/model of
// the source tree this program was built in. Says on stderr in one line what the built-in model is. Errors: invalid_input with
// the places looked in.
Result<std::string> model_or_builtin(const std::string& given);

}  // namespace espalier::app
