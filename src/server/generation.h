// One reply being produced: the jobs of its choices, their decoders, and the writer of the dialect. Takes events from the job
// streams on the connection's strand; stops taking them while the client reads slowly (the engine never waits: a job's queue
// is bounded by its own length).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/chat_completions_request.h"
#include "server/http_types.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/reply_decoder.h"
#include "server/reply_writer.h"

namespace espalier::server {

enum class ReplyMode { whole, stream };

struct GenerationPlan {
    std::shared_ptr<const ServerContext> context;             // keeps tokenizer and tool format alive
    std::vector<std::shared_ptr<engine::JobStream>> streams;  // one per choice
    std::vector<ReplyDecoder> decoders;                       // one per choice
    std::vector<TextRun> forced_head;                         // of every choice
    std::unique_ptr<ReplyWriter> writer;
    ReplyMode mode = ReplyMode::whole;
    ParallelCalls parallel_calls = ParallelCalls::allowed;
    size_t unsent_bytes_max = 1 << 20;
    Clock::time_point received;
    std::string log_fields;  // of the request, e.g. repairs of the history
};

class Generation : public Activity {
public:
    // metrics and log must outlive the generation.
    Generation(GenerationPlan plan, Metrics& metrics, const Log& log);
    ~Generation() override;

    void start(Exchange& exchange) override;
    void on_wake() override { take_events(); }
    void on_drained() override { take_events(); }
    void on_tick() override;
    std::string on_closed() override;

private:
    struct Choice {
        ReplyDecoder decoder;
        std::shared_ptr<engine::JobStream> stream;
        ChoiceReply reply;
        std::vector<engine::TokenLogprob> unwritten_logprobs;
        bool is_cut = false;  // a single call was wanted and is complete
        bool is_done = false;
    };

    void take_events();
    void take_event(size_t index, engine::JobEvent event);
    void emit(size_t index, const std::vector<text::OutputDelta>& deltas);
    void add_to_reply(Choice& choice, const text::OutputDelta& delta);
    void finish_choice(size_t index, const engine::JobEvent& event);
    void add_totals(const engine::Timings& timings);
    void fail(const ApiError& error);
    void complete();
    void release_streams();
    std::string log_fields(std::string_view finish) const;

    std::shared_ptr<const ServerContext> context_;
    std::vector<Choice> choices_;
    std::vector<TextRun> forced_head_;
    std::unique_ptr<ReplyWriter> writer_;
    ReplyMode mode_;
    ParallelCalls parallel_calls_;
    size_t unsent_bytes_max_;
    Clock::time_point received_;
    std::string request_log_fields_;
    Metrics& metrics_;
    const Log& log_;

    Exchange* exchange_ = nullptr;
    std::string out_;  // events of this round
    engine::Timings totals_;
    int n_done_ = 0;
    bool is_over_ = false;
    bool is_silent_ = true;  // nothing was sent since the last tick
    int32_t prompt_done_ = 0;
    std::optional<double> first_delta_ms_;
};

}  // namespace espalier::server
