// What the server says about itself: health, models, properties, metrics.
#include <fmt/format.h>

#include "server/cache_miss.h"
#include "server/security.h"
#include "server/service.h"
#include "server/submit.h"

namespace espalier::server {
namespace {

Json model_json(const ServerContext& context) {
    return {{"id", context.alias},
            {"object", "model"},
            {"created", context.created},
            {"owned_by", "espalier"},
            {"max_model_len", context.backend->info().context_tokens},
            {"context_length", context.backend->info().context_tokens}};
}

HttpResponse json_response(const Json& body) {
    HttpResponse response;
    response.body = dump_json(body);
    return response;
}

const char* thinking_name(text::Thinking thinking) {
    switch (thinking) {
        case text::Thinking::on: return "on";
        case text::Thinking::off: return "off";
        case text::Thinking::unspecified: break;
    }
    return "template";
}

}  // namespace

Outcome handle_health(Service& service, const HandlerContext& context, const HttpRequest&) {
    if (context) return json_response({{"status", "ready"}});
    HttpResponse response = json_response({{"status", "loading"}, {"progress", service.progress()}});
    response.status = 503;
    response.headers.emplace_back("Retry-After", "1");
    return response;
}

Outcome handle_models(Service&, const HandlerContext& context, const HttpRequest&) {
    return json_response({{"object", "list"}, {"data", Json::array({model_json(*context)})}});
}

Outcome handle_model(Service&, const HandlerContext& context, const HttpRequest& request) {
    const std::string name = request.path.substr(std::string_view("/v1/models/").size());
    if (auto error = check_model(*context, name)) return error_response(*error);
    return json_response(model_json(*context));
}

Outcome handle_props(Service& service, const HandlerContext& context, const HttpRequest&) {
    const engine::BackendInfo& info = context->backend->info();
    const engine::BackendGauges gauges = context->backend->gauges();
    Json sampling = {{"temperature", context->sampling.temperature},
                     {"top_k", context->sampling.top_k},
                     {"top_p", context->sampling.top_p},
                     {"min_p", context->sampling.min_p},
                     {"repetition_penalty", context->sampling.repetition_penalty}};
    Json disk = nullptr;
    if (gauges.has_disk) {
        disk = {{"bytes", gauges.disk_bytes},
                {"budget_bytes", gauges.disk_budget_bytes},
                {"conversations", gauges.disk_conversations},
                {"writing", gauges.is_disk_writing}};
    }
    Json details = Json::object();
    for (const auto& [name, value] : info.details) details[name] = value;
    return json_response({{"model", context->alias},
                          {"model_name", info.model_name},
                          {"build", service.options().version},
                          {"acts", info.acts},
                          {"kv_type", info.kv_type},
                          {"tier", info.isa},
                          {"threads", info.n_threads},
                          {"context", info.context_tokens},
                          {"parallel", info.sequences_max},
                          {"weight_bytes", info.weight_bytes},
                          {"tool_format", std::string(context->tool_format.name)},
                          {"template_hash", context->template_hash},
                          {"thinking", thinking_name(context->thinking)},
                          {"sampling_defaults", std::move(sampling)},
                          {"cache",
                           {{"bytes", gauges.cache_bytes},
                            {"budget_bytes", gauges.cache_budget_bytes},
                            {"page_bytes", gauges.cache_page_bytes},
                            {"state_bytes", gauges.cache_state_bytes},
                            {"index_bytes", gauges.cache_index_bytes},
                            {"snapshots", gauges.cache_snapshots},
                            {"evictions", gauges.cache_evictions_total},
                            {"disk", std::move(disk)}}},
                          {"jobs", {{"running", gauges.jobs_running}, {"queued", gauges.jobs_queued}}},
                          {"details", std::move(details)}});
}

Outcome handle_last_miss(Service& service, const HandlerContext& context, const HttpRequest& request) {
    const std::string* key = used_key(request, service.options());
    const auto misses = context->backend->cache_misses(key != nullptr ? *key : "");
    if (misses.empty()) return json_response({{"miss", nullptr}, {"earlier", Json::array()}});
    Json body = {{"miss", cache_miss_json(*misses.front(), *context->tokenizer)}, {"earlier", Json::array()}};
    for (size_t i = 1; i < misses.size(); ++i) body["earlier"].push_back(cache_miss_json(*misses[i], *context->tokenizer));
    return json_response(body);
}

Outcome handle_metrics(Service& service, const HandlerContext& context, const HttpRequest&) {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = service.metrics().text(context->backend->gauges());
    return response;
}

}  // namespace espalier::server
