// What all requests share, and the table of routes. Knows no sockets.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/http_types.h"
#include "server/metrics.h"
#include "server/options.h"

namespace espalier::server {

class Service {
public:
    explicit Service(ServerOptions options) : options_(std::move(options)) {}

    // Judges a request by its header alone: access, route, method. An error ends it before the body is read.
    std::optional<HttpResponse> check_head(const HttpRequest& head) const;
    // True if handling takes long enough to be kept off the I/O threads.
    bool is_heavy(const HttpRequest& request) const;
    // Runs the route's handler. Any thread; foreign exceptions become a 500.
    Outcome handle(const HttpRequest& request);
    // One line per request in the log, and the counters. Probes (/health, /metrics) are logged at debug level.
    void note_done(const HttpRequest& request, int status, std::string_view log_fields);

    void attach(std::shared_ptr<const ServerContext> context);
    // nullptr while the model loads.
    std::shared_ptr<const ServerContext> context() const;
    void set_progress(double share) { progress_ = share; }
    double progress() const { return progress_; }
    // One line per name, for the life of the server.
    void warn_unknown_fields(std::string_view path, const std::vector<std::string>& names);

    const ServerOptions& options() const { return options_; }
    const Log& log() const { return options_.log; }
    Metrics& metrics() { return metrics_; }

private:
    const ServerOptions options_;
    Metrics metrics_;
    std::atomic<double> progress_{0};
    mutable std::mutex mutex_;
    std::shared_ptr<const ServerContext> context_;
    std::set<std::string> warned_fields_;
};

// Handlers, one per route; each sees a request whose header has been checked. `context` is the loaded model.
using HandlerContext = std::shared_ptr<const ServerContext>;
Outcome handle_chat_completions(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_completions(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_apply_template(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_tokenize(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_detokenize(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_models(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_model(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_props(Service& service, const HandlerContext& context, const HttpRequest& request);
// The latest misses of the prefix cache of the request's key, with prompt text.
Outcome handle_last_miss(Service& service, const HandlerContext& context, const HttpRequest& request);
Outcome handle_metrics(Service& service, const HandlerContext& context, const HttpRequest& request);
// context may be null.
Outcome handle_health(Service& service, const HandlerContext& context, const HttpRequest& request);

}  // namespace espalier::server
