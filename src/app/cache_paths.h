// Where conversations are kept when nobody says otherwise.
#pragma once

#include <string>

#include "base/result.h"

namespace espalier::app {

// $XDG_CACHE_HOME/espalier/conversations, else $HOME/.cache/espalier/conversations. Errors: invalid_input when neither is set.
Result<std::string> default_cache_dir();

}  // namespace espalier::app
