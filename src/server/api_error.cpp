#include "server/api_error.h"

#include <fmt/format.h>

namespace espalier::server {
namespace {

struct Row {
    ErrorCode from;
    int status;
    const char* type;
    const char* code;
};

// The one place where an error code becomes an HTTP status.
constexpr Row kTable[] = {
    {ErrorCode::invalid_input, 400, "invalid_request_error", "invalid_value"},
    {ErrorCode::unsupported, 400, "invalid_request_error", "unsupported_parameter"},
    {ErrorCode::exhausted, 503, "overloaded_error", "overloaded"},
    {ErrorCode::cancelled, 503, "server_error", "cancelled"},
    {ErrorCode::corrupt_data, 500, "server_error", "internal_error"},
    {ErrorCode::device, 500, "server_error", "internal_error"},
    {ErrorCode::internal, 500, "server_error", "internal_error"},
};

}  // namespace

ApiError api_error_from(const Error& error) {
    for (const Row& row : kTable) {
        if (row.from != error.code) continue;
        ApiError result{row.status, row.type, row.code, "", error.message, 0, {}};
        if (row.status == 503) result.retry_after_s = 1;
        if (row.status == 500) result.message = "internal error; the server's log has the reason under this request's id";
        return result;
    }
    CHECK(false, "every error code has a row");
}

ApiError bad_value(std::string param, std::string message) {
    return {400, "invalid_request_error", "invalid_value", std::move(param), std::move(message), 0, {}};
}

ApiError unsupported_parameter(std::string param, std::string message) {
    return {400, "invalid_request_error", "unsupported_parameter", std::move(param), std::move(message), 0, {}};
}

ApiError not_found(std::string message) {
    return {404, "invalid_request_error", "not_found", "", std::move(message), 0, {}};
}

ApiError overloaded(std::string message) {
    return {503, "overloaded_error", "overloaded", "", std::move(message), 1, {}};
}

ApiError context_length_exceeded(int64_t prompt_tokens, int64_t context_tokens) {
    std::string message = fmt::format(
        "prompt is too long: {} tokens, which exceeds the available context size of {} tokens (this model's maximum context "
        "length is {} tokens); shorten the conversation or start the server with a larger --ctx",
        prompt_tokens, context_tokens, context_tokens);
    return {400,
            "invalid_request_error",
            "context_length_exceeded",
            "messages",
            std::move(message),
            0,
            {{"n_prompt_tokens", prompt_tokens}, {"n_ctx", context_tokens}}};
}

Json error_json(const ApiError& error) {
    Json body = {{"message", error.message}, {"type", error.type}, {"param", nullptr}, {"code", error.code}};
    if (!error.param.empty()) body["param"] = error.param;
    for (const auto& [name, number] : error.numbers) body[name] = number;
    return Json{{"error", std::move(body)}};
}

HttpResponse error_response(const ApiError& error) {
    HttpResponse response;
    response.status = error.status;
    response.body = dump_json(error_json(error));
    response.log_fields = "error=" + error.code;
    if (error.retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
    if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
}

}  // namespace espalier::server
