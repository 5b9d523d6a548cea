#include "server/submit.h"

#include <fmt/format.h>

namespace espalier::server {

std::optional<ApiError> submit_jobs(const ServerContext& context, const RequestFields& fields,
                                    std::vector<engine::TokenId> prompt, std::vector<int32_t> boundaries,
                                    std::vector<std::shared_ptr<engine::JobStream>>& out) {
    const auto n_prompt = static_cast<int64_t>(prompt.size());
    const int64_t n_context = context.backend->info().context_tokens;
    if (n_prompt >= n_context) return context_length_exceeded(n_prompt, n_context);
    for (int choice = 0; choice < fields.n_choices; ++choice) {
        engine::Job job = make_job(fields, context, prompt.size(), choice);
        job.prompt = prompt;
        job.stable_boundaries = boundaries;
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
