// From a finished prompt to running jobs, with the errors a client understands.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/request_fields.h"
#include "server/service.h"

namespace espalier::server {

// Who asks and in which conversation: the cache's owner is the API key.
void identify_client(const ServerOptions& options, const HttpRequest& request, RequestFields& fields);

// One job per choice. Where messages end is found by the model's stop tokens. On error none is left running: 400
// context_length_exceeded, 503 overloaded (queue full), ….
std::optional<ApiError> submit_jobs(const ServerContext& context, const RequestFields& fields,
                                    std::vector<engine::TokenId> prompt, const std::vector<text::StableBoundary>& boundaries,
                                    std::vector<std::shared_ptr<engine::JobStream>>& out);

// 404 model_not_found if names are strict and this is not the model's.
std::optional<ApiError> check_model(const ServerContext& context, const std::string& name);

// Errors of rendering: the template refused the conversation.
ApiError render_error(const Error& error);

}  // namespace espalier::server
