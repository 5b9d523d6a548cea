#include "server/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace espalier::server {
namespace {

template <class T>
void append_metric(std::string& out, std::string_view name, std::string_view type, std::string_view help, T value) {
    fmt::format_to(std::back_inserter(out), "# HELP espalier_{0} {1}\n# TYPE espalier_{0} {2}\nespalier_{0} {3}\n", name, help,
                   type, value);
}

void append_by_label(std::string& out, std::string_view name, std::string_view help, std::string_view label,
                     const std::map<std::string, int64_t>& values) {
    fmt::format_to(std::back_inserter(out), "# HELP espalier_{0} {1}\n# TYPE espalier_{0} counter\n", name, help);
    for (const auto& [key, value] : values) {
        fmt::format_to(std::back_inserter(out), "espalier_{}{{{}=\"{}\"}} {}\n", name, label, key, value);
    }
}

void append_disk(std::string& out, const engine::BackendGauges& gauges) {
    append_metric(out, "disk_writing", "gauge", "0: the disk is full or read-only, nothing is written.",
                  gauges.is_disk_writing ? 1 : 0);
    append_metric(out, "disk_bytes", "gauge", "Bytes of stored conversations.", gauges.disk_bytes);
    append_metric(out, "disk_budget_bytes", "gauge", "Byte budget of stored conversations.", gauges.disk_budget_bytes);
    append_metric(out, "disk_conversations", "gauge", "Stored conversations.", gauges.disk_conversations);
    append_metric(out, "disk_entries", "gauge", "Places where a stored conversation can go on.", gauges.disk_entries);
    append_metric(out, "disk_writes_pending", "gauge", "Snapshots waiting to be written.", gauges.disk_writes_pending);
    append_metric(out, "disk_writes_total", "counter", "Snapshots written.", gauges.disk_writes_total);
    append_metric(out, "disk_page_bytes_written_total", "counter", "Keys and values written.",
                  gauges.disk_page_bytes_written_total);
    append_metric(out, "disk_state_bytes_written_total", "counter", "State files written.",
                  gauges.disk_state_bytes_written_total);
    append_metric(out, "disk_reads_total", "counter", "Requests that went on from disk.", gauges.disk_reads_total);
}

}  // namespace

void Metrics::Histogram::add(double value) {
    for (size_t i = 0; i < kBounds.size(); ++i) buckets[i] += value <= kBounds[i] ? 1 : 0;
    ++count;
    sum += value;
}

void Metrics::count_request(std::string_view route, int status, double seconds) {
    std::lock_guard lock(mutex_);
    ++requests_[{std::string(route), status}];
    request_seconds_.add(seconds);
}

void Metrics::count_reply(std::string_view finish_reason, double first_delta_seconds) {
    std::lock_guard lock(mutex_);
    ++finishes_[std::string(finish_reason)];
    first_delta_seconds_.add(first_delta_seconds);
}

void Metrics::count_timings(const engine::Timings& timings) {
    std::lock_guard lock(mutex_);
    drafted_ += timings.drafted;
    accepted_ += timings.accepted;
    rounds_ += timings.rounds;
    for (size_t i = 0; i < engine::kDraftSources.size(); ++i) {
        drafted_by_[engine::kDraftSources[i]] += timings.drafted_by[i];
        accepted_by_[engine::kDraftSources[i]] += timings.accepted_by[i];
    }
    prefill_seconds_ += timings.prefill_ms / 1000;
    decode_seconds_ += timings.decode_ms / 1000;
}

void Metrics::count_repair(std::string_view kind, int n) {
    if (n == 0) return;
    std::lock_guard lock(mutex_);
    repairs_[std::string(kind)] += n;
}

void Metrics::count_client_gone() {
    std::lock_guard lock(mutex_);
    ++clients_gone_;
}

void Metrics::append_histogram(std::string& out, std::string_view name, std::string_view help, const Histogram& histogram) {
    auto at = std::back_inserter(out);
    fmt::format_to(at, "# HELP espalier_{0} {1}\n# TYPE espalier_{0} histogram\n", name, help);
    for (size_t i = 0; i < kBounds.size(); ++i) {
        fmt::format_to(at, "espalier_{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], histogram.buckets[i]);
    }
    fmt::format_to(at, "espalier_{0}_bucket{{le=\"+Inf\"}} {1}\nespalier_{0}_sum {2}\nespalier_{0}_count {1}\n", name,
                   histogram.count, histogram.sum);
}

std::string Metrics::text(const engine::BackendGauges& gauges) const {
    std::lock_guard lock(mutex_);
    std::string out;
    append_metric(out, "jobs_running", "gauge", "Sequences being computed.", gauges.jobs_running);
    append_metric(out, "jobs_queued", "gauge", "Jobs waiting for a place.", gauges.jobs_queued);
    append_metric(out, "cache_bytes", "gauge", "Bytes of cached sequence state.", gauges.cache_bytes);
    append_metric(out, "cache_budget_bytes", "gauge", "Byte budget of cached sequence state.", gauges.cache_budget_bytes);
    append_metric(out, "cache_page_bytes", "gauge", "Keys and values held by snapshots, each page once.",
                  gauges.cache_page_bytes);
    append_metric(out, "cache_state_bytes", "gauge", "Recurrent states held by snapshots.", gauges.cache_state_bytes);
    append_metric(out, "cache_index_bytes", "gauge", "Token ids and nodes of the prefix tree.", gauges.cache_index_bytes);
    append_metric(out, "cache_snapshots", "gauge", "Places where a prompt can go on.", gauges.cache_snapshots);
    append_metric(out, "cache_evictions_total", "counter", "Snapshots given up for memory.", gauges.cache_evictions_total);
    append_metric(out, "cache_hits_total", "counter", "Requests that went on from a snapshot.", gauges.cache_hits_total);
    append_metric(out, "cache_misses_total", "counter", "Requests that read again what an earlier one had read.",
                  gauges.cache_misses_total);
    if (gauges.has_disk) append_disk(out, gauges);
    append_metric(out, "prompt_tokens_total", "counter", "Prompt tokens received.", gauges.prompt_tokens_total);
    append_metric(out, "cached_tokens_total", "counter", "Prompt tokens restored instead of computed.",
                  gauges.cached_tokens_total);
    append_metric(out, "output_tokens_total", "counter", "Tokens produced.", gauges.output_tokens_total);
    append_metric(out, "draft_tokens_total", "counter", "Draft tokens proposed.", drafted_);
    append_metric(out, "draft_tokens_accepted_total", "counter", "Draft tokens accepted.", accepted_);
    append_metric(out, "rounds_total", "counter", "Forward passes after prompts.", rounds_);
    append_by_label(out, "draft_source_tokens_total", "Draft tokens proposed, by source.", "source", drafted_by_);
    append_by_label(out, "draft_source_tokens_accepted_total", "Draft tokens accepted, by source.", "source", accepted_by_);
    append_metric(out, "prefill_seconds_total", "counter", "Time spent on prompts.", prefill_seconds_);
    append_metric(out, "decode_seconds_total", "counter", "Time spent on replies.", decode_seconds_);
    append_metric(out, "clients_gone_total", "counter", "Replies given up because the client left.", clients_gone_);
    append_by_label(out, "replies_total", "Replies by how they ended.", "finish_reason", finishes_);
    append_by_label(out, "repairs_total", "Repairs of histories and of model output, by kind.", "kind", repairs_);
    fmt::format_to(std::back_inserter(out),
                   "# HELP espalier_requests_total Requests by route and status.\n"
                   "# TYPE espalier_requests_total counter\n");
    for (const auto& [key, value] : requests_) {
        fmt::format_to(std::back_inserter(out), "espalier_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first,
                       key.second, value);
    }
    append_histogram(out, "request_seconds", "Time from a request's first byte to the end of its answer.", request_seconds_);
    append_histogram(out, "first_delta_seconds", "Time from a request's first byte to the first piece of its reply.",
                     first_delta_seconds_);
    return out;
}

}  // namespace espalier::server
