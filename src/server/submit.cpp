#include "server/submit.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/security.h"

namespace espalier::server {
namespace {

std::vector<engine::Boundary> to_boundaries(const std::vector<text::StableBoundary>& stable,
                                            const std::vector<engine::TokenId>& prompt,
                                            const std::vector<engine::TokenId>& stop_ids) {
    using Kind = engine::Boundary::Kind;
    std::vector<engine::Boundary> boundaries;
    for (const text::StableBoundary& boundary : stable) {
        const bool is_user = boundary.follower == text::StableBoundary::Follower::user;
        boundaries.push_back({boundary.tokens, is_user ? Kind::before_user : Kind::before_tool});
    }
    for (size_t i = 0; i < prompt.size(); ++i) {
        if (std::find(stop_ids.begin(), stop_ids.end(), prompt[i]) != stop_ids.end())
            boundaries.push_back({static_cast<int32_t>(i + 1), Kind::message_end});
    }
    return boundaries;
}

}  // namespace

void identify_client(const ServerOptions& options, const HttpRequest& request, RequestFields& fields) {
    if (const std::string* key = used_key(request, options)) fields.cache_owner = *key;
    if (!request.session_id.empty()) fields.session_hint = request.session_id;
}

std::optional<ApiError> submit_jobs(const ServerContext& context, const RequestFields& fields,
                                    std::vector<engine::TokenId> prompt, const std::vector<text::StableBoundary>& boundaries,
                                    std::vector<std::shared_ptr<engine::JobStream>>& out) {
    const auto n_prompt = static_cast<int64_t>(prompt.size());
    const int64_t n_context = context.backend->info().context_tokens;
    if (n_prompt >= n_context) return context_length_exceeded(n_prompt, n_context);
    const std::vector<engine::Boundary> job_boundaries = to_boundaries(boundaries, prompt, context.stop_ids);
    for (int choice = 0; choice < fields.n_choices; ++choice) {
        engine::Job job = make_job(fields, context, prompt.size(), choice);
        job.prompt = prompt;
        job.boundaries = job_boundaries;
        Result<std::shared_ptr<engine::JobStream>> stream = context.backend->submit(std::move(job));
        if (stream) {
            out.push_back(*std::move(stream));
            continue;
        }
        for (const auto& started : out) started->cancel();
        out.clear();
        const Error& error = stream.error();
        if (error.code == ErrorCode::exhausted && error.message.find("context size") != std::string::npos) {
            return context_length_exceeded(n_prompt, n_context);
        }
        return api_error_from(error);
    }
    return std::nullopt;
}

std::optional<ApiError> check_model(const ServerContext& context, const std::string& name) {
    if (context.model_names == ModelNames::any || name == context.alias) return std::nullopt;
    ApiError error = not_found(fmt::format("model \"{}\" is not served here, \"{}\" is", name, context.alias));
    error.code = "model_not_found";
    error.param = "model";
    return error;
}

ApiError render_error(const Error& error) {
    ApiError result = api_error_from(error);
    if (error.code == ErrorCode::exhausted) {
        result = bad_value("messages", "the chat template needs too many steps for this conversation: " + error.message);
    }
    if (result.param.empty()) result.param = "messages";
    return result;
}

}  // namespace espalier::server
