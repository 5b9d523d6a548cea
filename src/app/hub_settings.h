// Where models are fetched from and kept, as the environment says it: the variables that the Hugging Face tools read.
#pragma once

#include <string>

#include "base/result.h"
#include "hub/http.h"

namespace espalier::app {

struct HubSettings {
    std::string cache_dir;  // HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub
    hub::HttpOptions http;  // HF_ENDPOINT; HF_TOKEN, else the file that `hf auth login` writes; SSL_CERT_FILE
    std::string proxy;      // "https_proxy=http://host:port" in force for the endpoint, password removed; empty = none
    bool is_offline = false;  // HF_HUB_OFFLINE
};

// Errors: invalid_input when no place for the cache is known.
Result<HubSettings> hub_settings();

}  // namespace espalier::app
