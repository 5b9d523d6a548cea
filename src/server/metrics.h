// Counters for /metrics. Safe from any thread; nothing here is touched per token.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/engine.h"

namespace espalier::server {

class Metrics {
public:
    void count_request(std::string_view route, int status, double seconds);
    void count_reply(std::string_view finish_reason, double first_delta_seconds);
    void count_timings(const engine::Timings& timings);
    void count_repair(std::string_view kind, int n);
    void count_client_gone();

    // Prometheus text format.
    std::string text(const engine::BackendGauges& gauges) const;

private:
    static constexpr std::array kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0};
    struct Histogram {
        std::array<int64_t, kBounds.size()> buckets{};  // cumulative
        int64_t count = 0;
        double sum = 0;
        void add(double value);
    };
    static void append_histogram(std::string& out, std::string_view name, std::string_view help, const Histogram& histogram);

    mutable std::mutex mutex_;
    std::map<std::pair<std::string, int>, int64_t> requests_;
    std::map<std::string, int64_t> finishes_;
    std::map<std::string, int64_t> repairs_;
    int64_t clients_gone_ = 0;
    int64_t drafted_ = 0;
    int64_t accepted_ = 0;
    int64_t rounds_ = 0;
    std::map<std::string, int64_t> drafted_by_;
    std::map<std::string, int64_t> accepted_by_;
    double prefill_seconds_ = 0;
    double decode_seconds_ = 0;
    Histogram request_seconds_;
    Histogram first_delta_seconds_;
};

}  // namespace espalier::server
