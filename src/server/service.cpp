#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/security.h"

namespace espalier::server {
namespace {

using Handler = Outcome (*)(Service&, const HandlerContext&, const HttpRequest&);

enum class Needs { model, nothing };
enum class Work { light, heavy };

struct Route {
    std::string_view method;
    std::string_view path;  // ending in '/': a prefix
    Handler handler;
    Needs needs;
    Work work;
    KeyCheck key;
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", handle_chat_completions, Needs::model, Work::heavy, KeyCheck::required},
    {"POST", "/chat/completions", handle_chat_completions, Needs::model, Work::heavy, KeyCheck::required},
    {"POST", "/v1/completions", handle_completions, Needs::model, Work::heavy, KeyCheck::required},
    {"POST", "/completions", handle_completions, Needs::model, Work::heavy, KeyCheck::required},
    {"POST", "/apply-template", handle_apply_template, Needs::model, Work::heavy, KeyCheck::required},
    {"POST", "/tokenize", handle_tokenize, Needs::model, Work::heavy, KeyCheck::required},
    {"POST", "/detokenize", handle_detokenize, Needs::model, Work::heavy, KeyCheck::required},
    {"GET", "/v1/models", handle_models, Needs::model, Work::light, KeyCheck::required},
    {"GET", "/models", handle_models, Needs::model, Work::light, KeyCheck::required},
    {"GET", "/v1/models/", handle_model, Needs::model, Work::light, KeyCheck::required},
    {"GET", "/props", handle_props, Needs::model, Work::light, KeyCheck::required},
    {"GET", "/metrics", handle_metrics, Needs::model, Work::light, KeyCheck::required},
    {"GET", "/debug/last-miss", handle_last_miss, Needs::model, Work::light, KeyCheck::required},
    {"GET", "/health", handle_health, Needs::nothing, Work::light, KeyCheck::skipped},
};

bool matches(const Route& route, std::string_view path) {
    if (route.path.ends_with('/')) return path.size() > route.path.size() && path.starts_with(route.path);
    return path == route.path;
}

// The route of this path with any method.
const Route* find_path(std::string_view path) {
    for (const Route& route : kRoutes) {
        if (matches(route, path)) return &route;
    }
    return nullptr;
}

bool fits_method(const Route& route, std::string_view method) {
    return method == route.method || (method == "HEAD" && route.method == "GET");
}

std::string allowed_methods(const Route& route) {
    return route.method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
}

HttpResponse options_response(const HttpRequest& head, const Route& route, const ServerOptions& options) {
    HttpResponse response;
    response.status = 204;
    response.headers.emplace_back("Allow", allowed_methods(route));
    if (!head.origin.empty() && is_origin_allowed(head, options)) {
        response.headers.emplace_back("Access-Control-Allow-Methods", allowed_methods(route));
        response.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Session-Id");
        response.headers.emplace_back("Access-Control-Max-Age", "600");
    }
    return response;
}

std::string printable(std::string_view text) {
    std::string out(text.substr(0, 200));
    std::replace_if(
        out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return out;
}

}  // namespace

std::optional<HttpResponse> Service::check_head(const HttpRequest& head) const {
    const Route* route = find_path(head.path);
    // A preflight carries no key; it is answered without telling more than the route table.
    const bool is_preflight = head.method == "OPTIONS";
    const KeyCheck key =
        is_preflight || (route != nullptr && route->key == KeyCheck::skipped) ? KeyCheck::skipped : KeyCheck::required;
    if (std::optional<ApiError> error = check_access(head, options_, key)) return error_response(*error);
    if (route == nullptr) {
        return error_response(not_found(fmt::format("{} {}: no such route", printable(head.method), printable(head.path))));
    }
    if (is_preflight) return options_response(head, *route, options_);
    if (!fits_method(*route, head.method)) {
        ApiError error = bad_value(
            "", fmt::format("{} is not allowed for {}, use {}", printable(head.method), printable(head.path), route->method));
        error.status = 405;
        error.code = "method_not_allowed";
        HttpResponse response = error_response(error);
        response.headers.emplace_back("Allow", allowed_methods(*route));
        return response;
    }
    return std::nullopt;
}

bool Service::is_heavy(const HttpRequest& request) const {
    const Route* route = find_path(request.path);
    return route != nullptr && route->work == Work::heavy;
}

Outcome Service::handle(const HttpRequest& request) {
    const Route* route = find_path(request.path);
    CHECK(route != nullptr && fits_method(*route, request.method), "check_head let only known routes pass");
    const HandlerContext loaded = context();
    if (route->needs == Needs::model && !loaded) {
        ApiError error = overloaded("the model is still loading; GET /health shows the progress");
        error.code = "model_loading";
        error.retry_after_s = 2;
        return error_response(error);
    }
    try {
        return route->handler(*this, loaded, request);
    } catch (const std::exception& e) {
        log().error(fmt::format("request {}: exception: {}", request.id, e.what()));
        return error_response(api_error_from(internal_error(e.what())));
    }
}

void Service::note_done(const HttpRequest& request, int status, std::string_view log_fields) {
    const double seconds = std::chrono::duration<double>(Clock::now() - request.received).count();
    const Route* route = find_path(request.path);
    metrics_.count_request(route != nullptr ? route->path : "other", status, seconds);
    std::string line = fmt::format("{} client={} {} {} {} ms={:.1f}", request.id, request.client, printable(request.method),
                                   printable(request.path), status, seconds * 1000);
    if (!log_fields.empty()) line += fmt::format(" {}", log_fields);
    if (route != nullptr && (route->path == "/health" || route->path == "/metrics")) return log().debug(line);
    log().info(line);
}

void Service::attach(std::shared_ptr<const ServerContext> context) {
    std::lock_guard lock(mutex_);
    context_ = std::move(context);
}

std::shared_ptr<const ServerContext> Service::context() const {
    std::lock_guard lock(mutex_);
    return context_;
}

void Service::warn_unknown_fields(std::string_view path, const std::vector<std::string>& names) {
    constexpr size_t kNamesMax = 256;  // a client that invents names must not fill the log
    for (const std::string& name : names) {
        std::unique_lock lock(mutex_);
        if (warned_fields_.size() >= kNamesMax || !warned_fields_.insert(printable(name)).second) continue;
        lock.unlock();
        log().warning(fmt::format("{}: unknown field \"{}\" is ignored (said once)", path, printable(name)));
    }
}

}  // namespace espalier::server
