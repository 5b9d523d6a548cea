// Who may talk to the server. Three checks on a request's header, before its body is read:
//  - Host must be an address or a known name: a web page whose name was re-pointed at 127.0.0.1 (DNS rebinding) sends its own;
//  - Origin, on requests that do something: only pages of the server itself, or of origins given at start. Content types are
//    no fence, a page can post JSON as text/plain;
//  - the API key, if there is one, in Authorization: Bearer or x-api-key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http_types.h"
#include "server/options.h"

namespace espalier::server {

enum class KeyCheck { required, skipped };

std::optional<ApiError> check_access(const HttpRequest& head, const ServerOptions& options, KeyCheck key_check);

// The key of the options that the request carries, or null.
const std::string* used_key(const HttpRequest& head, const ServerOptions& options);

// True if a request with this Origin may be answered: no origin, the server's own, or an allowed one.
bool is_origin_allowed(const HttpRequest& head, const ServerOptions& options);

// Takes as long for any guess of the same length.
bool equal_constant_time(std::string_view a, std::string_view b);

// "127.0.0.0/8", "::1" or "localhost".
bool is_loopback(std::string_view host);

}  // namespace espalier::server
