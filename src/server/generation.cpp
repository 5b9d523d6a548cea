#include "server/generation.h"

#include <fmt/format.h>

#include <iterator>
#include <map>

#include "server/cache_miss.h"
#include "server/ids.h"

namespace espalier::server {
namespace {

double ms_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

Generation::Generation(GenerationPlan plan, Metrics& metrics, const Log& log)
    : context_(std::move(plan.context)),
      forced_head_(std::move(plan.forced_head)),
      writer_(std::move(plan.writer)),
      mode_(plan.mode),
      parallel_calls_(plan.parallel_calls),
      unsent_bytes_max_(plan.unsent_bytes_max),
      received_(plan.received),
      request_log_fields_(std::move(plan.log_fields)),
      metrics_(metrics),
      log_(log) {
    for (size_t i = 0; i < plan.streams.size(); ++i) {
        choices_.push_back({std::move(plan.decoders[i]), std::move(plan.streams[i]), {}, {}, false, false});
    }
}

Generation::~Generation() {
    release_streams();
}

void Generation::start(Exchange& exchange) {
    exchange_ = &exchange;
    if (mode_ == ReplyMode::stream) {
        HttpResponse head;
        head.content_type = "text/event-stream; charset=utf-8";
        head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
        exchange_->begin_stream(std::move(head));
        writer_->begin(out_);
    }
    for (size_t i = 0; i < choices_.size(); ++i) {
        std::vector<text::OutputDelta> deltas;
        choices_[i].decoder.push_forced(forced_head_, deltas);
        emit(i, deltas);
    }
    for (Choice& choice : choices_) choice.stream->set_notify(exchange_->waker());
    take_events();
}

void Generation::on_tick() {
    if (is_over_ || mode_ != ReplyMode::stream) return;
    // A comment keeps proxies and idle timers of clients at rest during a long prompt.
    if (is_silent_ && exchange_->unsent_bytes() == 0)
        exchange_->write(fmt::format(": prompt {} of {}\n\n", prompt_done_, totals_.prompt_tokens));
    is_silent_ = true;
}

std::string Generation::on_closed() {
    release_streams();
    metrics_.count_client_gone();
    return log_fields("client_gone");
}

void Generation::take_events() {
    bool has_more = true;
    while (has_more && !is_over_) {
        has_more = false;
        for (size_t i = 0; i < choices_.size() && !is_over_; ++i) {
            if (mode_ == ReplyMode::stream && exchange_->unsent_bytes() + out_.size() > unsent_bytes_max_) break;
            if (std::optional<engine::JobEvent> event = choices_[i].stream->try_next()) {
                take_event(i, *std::move(event));
                has_more = true;
            }
        }
    }
    if (is_over_ || out_.empty()) return;
    exchange_->write(out_);
    out_.clear();
    is_silent_ = false;
}

void Generation::take_event(size_t index, engine::JobEvent event) {
    Choice& choice = choices_[index];
    switch (event.kind) {
        case engine::JobEvent::Kind::prefill_progress:
            prompt_done_ = event.prompt_done;
            totals_.prompt_tokens = event.timings.prompt_tokens;
            totals_.cached_tokens = event.timings.cached_tokens;
            if (event.cache_miss && log_.is_enabled(LogLevel::debug))
                log_.debug(cache_miss_line(*event.cache_miss, *context_->tokenizer));
            break;
        case engine::JobEvent::Kind::tokens: {
            if (choice.is_cut) break;
            std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(choice.unwritten_logprobs));
            std::vector<text::OutputDelta> deltas;
            for (const engine::TokenId id : event.tokens) choice.decoder.push(id, deltas);
            emit(index, deltas);
            break;
        }
        case engine::JobEvent::Kind::finished: finish_choice(index, event); break;
        case engine::JobEvent::Kind::failed:
            log_.warning(fmt::format("job failed: {}: {}", to_string(event.error.code), event.error.message));
            fail(api_error_from(event.error));
            break;
    }
}

void Generation::emit(size_t index, const std::vector<text::OutputDelta>& deltas) {
    Choice& choice = choices_[index];
    for (const text::OutputDelta& delta : deltas) {
        if (choice.is_cut) return;
        if (!first_delta_ms_) first_delta_ms_ = ms_since(received_);
        add_to_reply(choice, delta);
        if (mode_ == ReplyMode::stream) {
            static const std::string kNoCall;
            const bool is_call = delta.call_index >= 0;
            const std::string& call_id = is_call ? choice.reply.calls[static_cast<size_t>(delta.call_index)].id : kNoCall;
            writer_->write_delta({static_cast<int>(index), delta, call_id, choice.unwritten_logprobs}, out_);
            if (delta.kind != text::OutputDelta::Kind::call_end) choice.unwritten_logprobs.clear();
        }
        if (delta.kind == text::OutputDelta::Kind::call_end && parallel_calls_ == ParallelCalls::first_only) {
            choice.is_cut = true;
            choice.stream->cancel();
        }
    }
}

void Generation::add_to_reply(Choice& choice, const text::OutputDelta& delta) {
    ChoiceReply& reply = choice.reply;
    switch (delta.kind) {
        case text::OutputDelta::Kind::reasoning: reply.reasoning += delta.text; break;
        case text::OutputDelta::Kind::content: reply.content += delta.text; break;
        case text::OutputDelta::Kind::call_begin:
            CHECK(delta.call_index == static_cast<int>(reply.calls.size()), "calls are numbered in order");
            reply.calls.push_back({new_id("call_"), delta.call_name, ""});
            break;
        case text::OutputDelta::Kind::call_arguments:
            reply.calls[static_cast<size_t>(delta.call_index)].arguments += delta.text;
            break;
        case text::OutputDelta::Kind::call_end: break;
    }
}

void Generation::finish_choice(size_t index, const engine::JobEvent& event) {
    Choice& choice = choices_[index];
    if (event.reason == engine::FinishReason::cancelled && !choice.is_cut) {
        return fail(api_error_from(cancelled("the reply was cancelled by the server")));
    }
    if (event.reason == engine::FinishReason::failed) return fail(api_error_from(internal_error("job failed")));
    std::vector<text::OutputDelta> deltas;
    const auto cause = event.reason == engine::FinishReason::length ? text::StopCause::length : text::StopCause::eos;
    std::string reason = choice.decoder.finish(cause, event.kept_text_bytes, deltas);
    emit(index, deltas);
    choice.reply.finish_reason = choice.is_cut ? "tool_calls" : std::move(reason);
    choice.is_done = true;
    choice.reply.logprobs =
        mode_ == ReplyMode::whole ? std::move(choice.unwritten_logprobs) : std::vector<engine::TokenLogprob>();
    add_totals(event.timings);
    ++n_done_;
    const bool is_last = n_done_ == static_cast<int>(choices_.size());
    if (mode_ == ReplyMode::stream) {
        writer_->end_choice(static_cast<int>(index), choice.reply, choice.unwritten_logprobs, is_last ? &totals_ : nullptr, out_);
    }
    if (is_last) complete();
}

void Generation::add_totals(const engine::Timings& timings) {
    const engine::Timings before = totals_;
    totals_ = timings;
    if (n_done_ == 0) return;
    // Further choices share the prompt; their output counts beside it.
    totals_.cached_tokens = before.cached_tokens;
    totals_.cache_source = before.cache_source;
    totals_.restore_ms = before.restore_ms;
    totals_.output_tokens += before.output_tokens;
    totals_.prefill_ms += before.prefill_ms;
    totals_.decode_ms += before.decode_ms;
    totals_.drafted += before.drafted;
    totals_.accepted += before.accepted;
    totals_.rounds += before.rounds;
}

void Generation::fail(const ApiError& error) {
    is_over_ = true;
    release_streams();
    if (mode_ == ReplyMode::whole) {
        HttpResponse response = error_response(error);
        response.log_fields += " " + log_fields("error");
        return exchange_->respond(std::move(response));
    }
    writer_->write_error(error, out_);
    exchange_->write(out_);
    exchange_->end_stream(fmt::format("error={} {}", error.code, log_fields("error")));
}

void Generation::complete() {
    is_over_ = true;
    std::vector<ChoiceReply> replies;
    for (Choice& choice : choices_) {
        metrics_.count_reply(choice.reply.finish_reason, first_delta_ms_.value_or(ms_since(received_)) / 1000);
        for (const auto& [kind, n] : choice.decoder.repairs()) metrics_.count_repair(kind, n);
    }
    metrics_.count_timings(totals_);
    std::string fields = log_fields(choices_[0].reply.finish_reason);
    if (mode_ == ReplyMode::stream) {
        writer_->end(totals_, out_);
        exchange_->write(out_);
        return exchange_->end_stream(std::move(fields));
    }
    for (Choice& choice : choices_) replies.push_back(std::move(choice.reply));
    HttpResponse response;
    response.body = writer_->whole(replies, totals_);
    response.log_fields = std::move(fields);
    exchange_->respond(std::move(response));
}

void Generation::release_streams() {
    for (Choice& choice : choices_) {
        if (!choice.stream) continue;
        choice.stream->set_notify({});
        if (!choice.is_done) choice.stream->cancel();
    }
}

std::string Generation::log_fields(std::string_view finish) const {
    const double decode_s = totals_.decode_ms / 1000;
    std::string out = fmt::format("prompt={} cached={} output={} ttft_ms={:.1f} tok_s={:.1f} finish={}", totals_.prompt_tokens,
                                  totals_.cached_tokens, totals_.output_tokens, first_delta_ms_.value_or(ms_since(received_)),
                                  decode_s > 0 ? totals_.output_tokens / decode_s : 0.0, finish);
    if (totals_.cache_source != engine::CacheSource::none)
        out += fmt::format(" source={} restore_ms={:.1f}", engine::to_string(totals_.cache_source), totals_.restore_ms);
    std::map<std::string, int> repairs;
    std::string tools;
    for (const Choice& choice : choices_) {
        for (const ReplyCall& call : choice.reply.calls) tools += (tools.empty() ? "" : ",") + call.name;
        for (const auto& [kind, n] : choice.decoder.repairs()) repairs[kind] += n;
    }
    if (!tools.empty()) out += " tools=" + tools;
    for (const auto& [kind, n] : repairs) out += fmt::format(" repair_{}={}", kind, n);
    if (totals_.drafted > 0) out += fmt::format(" drafted={} accepted={}", totals_.drafted, totals_.accepted);
    return out + request_log_fields_;
}

}  // namespace espalier::server
