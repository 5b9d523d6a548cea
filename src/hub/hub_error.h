// One line for what went wrong between here and the hub, with what to do.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/http.h"

namespace espalier::hub {

struct Asked {
    std::string repo;
    std::string revision;
    std::string file;   // empty: the repository itself
    std::string proxy;  // "https_proxy=http://..." in force, without a password; empty = none
};

// Of an exchange that is not complete. Codes: device for the network, invalid_input for what the hub refuses.
Error hub_error(const HttpResult& result, const HttpOptions& options, const Asked& asked);
// The same request may succeed a moment later.
bool is_passing(const HttpResult& result);

}  // namespace espalier::hub
