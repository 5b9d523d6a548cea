// What MODEL on the command line means: a folder, a name that `espalier models` lists, or nothing for the model that comes with
// the program.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace espalier::app {

// The built-in model's name.
inline constexpr const char* kBuiltinName = "espalier-demo";

// Folder of the built-in model: share/espalier/model of the installation, or demo/model of the source tree this program was
// built in. Errors: invalid_input with the places looked in.
Result<std::string> find_builtin_model();

// The folder of a MODEL. Says on stderr in one line what the built-in model is where it is meant. Errors: invalid_input for what
// is neither folder nor name, or a model that is not wholly there.
Result<std::string> model_or_builtin(const std::string& given);

// The name to show for a model folder: that of its repository where it lies in a hub's cache, else the folder's.
std::string model_display_name(const std::string& path);

// A word that `espalier models` lists.
bool is_model_name(const std::string& word);

}  // namespace espalier::app
