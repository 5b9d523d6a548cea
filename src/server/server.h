// The HTTP server: listens at once, answers /health with progress while the model loads, serves once a context is attached.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/options.h"

namespace espalier::server {

class HttpServer {
public:
    // Binds, listens and starts the threads. Errors: invalid_input (bad address, public address without a key), exhausted
    // (address in use, no permission).
    static Result<std::unique_ptr<HttpServer>> start(ServerOptions options);
    // As stop(0).
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    uint16_t port() const;
    // "http://127.0.0.1:8080"
    std::string url() const;

    // Until attach: share of the load done, 0 to 1, shown by /health.
    void set_progress(double share);
    // The model is ready. Called once.
    void attach(std::shared_ptr<const ServerContext> context);

    // No new connections; idle ones are closed; running answers may finish for `grace_ms`, then they are cancelled. Returns
    // when no request runs and all threads have ended. Idempotent.
    void stop(int grace_ms);

private:
    HttpServer();
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::server
