#include "app/cache_paths.h"

#include "base/environment.h"

namespace espalier::app {

Result<std::string> default_cache_dir() {
    // The XDG base directory rules: a relative path there is to be ignored.
    if (const auto base = environment_variable("XDG_CACHE_HOME"); base && base->starts_with("/"))
        return *base + "/espalier/conversations";
    if (const auto home = environment_variable("HOME"); home && !home->empty()) return *home + "/.cache/espalier/conversations";
    return invalid_input("neither XDG_CACHE_HOME nor HOME is set; name a directory with --cache-dir");
}

}  // namespace espalier::app
