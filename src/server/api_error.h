// Errors as API clients see them: one table from ErrorCode to HTTP status, and the OpenAI error object.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/http_types.h"

namespace espalier::server {

struct ApiError {
    int status = 400;
    std::string type = "invalid_request_error";
    std::string code = "invalid_value";
    std::string param;  // JSON path of the field, empty = null
    std::string message;
    int retry_after_s = 0;                                 // 0 = no Retry-After header
    std::vector<std::pair<std::string, int64_t>> numbers;  // further members of the error object
};

// Errors of the engine and the text layer. Those that are our fault (status 500) keep their message out of the answer; the
// caller logs it.
ApiError api_error_from(const Error& error);

ApiError bad_value(std::string param, std::string message);
ApiError unsupported_parameter(std::string param, std::string message);
ApiError not_found(std::string message);
ApiError overloaded(std::string message);
// 400 context_length_exceeded: the words that clients look for, and both numbers.
ApiError context_length_exceeded(int64_t prompt_tokens, int64_t context_tokens);

// {"error": {message, type, param, code, …}}
Json error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

}  // namespace espalier::server
