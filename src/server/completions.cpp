// POST /v1/completions: the prompt as text or token ids, the reply as it is; no template, no parsing.
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "server/generation.h"
#include "server/ids.h"
#include "server/reply_json.h"
#include "server/submit.h"

namespace espalier::server {
namespace {

struct CompletionsRequest {
    RequestFields fields;
    std::vector<engine::TokenId> prompt;
    std::vector<std::string> unknown_fields;
};

void read_prompt(FieldReader& reader, const text::Tokenizer& tokenizer, ReadState& state, std::vector<engine::TokenId>& out) {
    const text::Value* prompt = reader.get("prompt");
    if (prompt == nullptr) return state.fail(bad_value("prompt", "prompt: expected a string or an array of token ids"));
    // [text] and [[ids]], the one-element batches that some clients send.
    if (prompt->as_list() != nullptr && prompt->as_list()->size() == 1 && prompt->as_list()->front().as_int() == nullptr) {
        prompt = &prompt->as_list()->front();
    }
    if (prompt->as_string() != nullptr) {
        out = tokenizer.encode(*prompt->as_string());
    } else if (prompt->as_list() != nullptr) {
        for (const text::Value& entry : *prompt->as_list()) {
            if (entry.as_string() != nullptr || entry.as_list() != nullptr) {
                return state.fail(
                    unsupported_parameter("prompt", "prompt: batches are not supported, send one prompt per request"));
            }
            const int64_t* id = entry.as_int();
            if (id == nullptr || *id < 0 || *id >= tokenizer.vocab_size()) {
                return state.fail(
                    bad_value("prompt", fmt::format("prompt: expected token ids from 0 to {}", tokenizer.vocab_size() - 1)));
            }
            out.push_back(static_cast<engine::TokenId>(*id));
        }
    } else {
        return reader.wrong_type("prompt", "a string or an array of token ids", *prompt);
    }
    if (out.empty()) state.fail(bad_value("prompt", "prompt: expected at least one token"));
}

std::optional<ApiError> parse_completions(std::string_view body, const ServerLimits& limits, const ServerContext& context,
                                          CompletionsRequest& out) {
    text::Value root;
    if (std::optional<ApiError> error = parse_body(body, limits, root)) return error;
    ReadState state;
    FieldReader reader(*root.as_dict(), "", state);
    read_request_fields(reader, limits, context.sampling, state, out.fields);
    read_prompt(reader, *context.tokenizer, state, out.prompt);
    reader.unsupported("suffix", "fill-in-the-middle is not supported");
    int64_t best_of = 1;
    if (reader.integer("best_of", 1, limits.choices, best_of) && best_of != out.fields.n_choices) {
        state.fail(unsupported_parameter("best_of", "best_of: only the value of n is supported"));
    }
    bool echo = false;
    if (reader.boolean("echo", echo) && echo) state.fail(unsupported_parameter("echo", "echo: not supported"));
    int64_t n_logprobs = 0;
    if (reader.integer("logprobs", 0, 20, n_logprobs)) out.fields.sampling.n_logprobs = static_cast<int32_t>(n_logprobs);
    reader.finish();
    out.unknown_fields = std::move(state.unknown_fields);
    return std::move(state.error);
}

class CompletionsWriter : public ReplyWriter {
public:
    CompletionsWriter(ReplyHead head, const RequestFields& fields, const text::Tokenizer& tokenizer)
        : head_(std::move(head)),
          usage_chunk_(fields.usage_chunk),
          has_logprobs_(fields.sampling.n_logprobs >= 0),
          tokenizer_(tokenizer) {}

    void begin(std::string&) override {}
    void write_delta(const ReplyDelta& delta, std::string& out) override {
        append_event(document({choice(delta.choice, delta.delta.text, delta.logprobs, nullptr)}), out);
    }
    void end_choice(int index, const ChoiceReply& reply, const std::vector<engine::TokenLogprob>& logprobs,
                    const engine::Timings* totals, std::string& out) override {
        Json last = document({choice(index, "", logprobs, reply.finish_reason)});
        if (totals != nullptr && usage_chunk_ == UsageChunk::with_last) add_totals(last, *totals);
        append_event(last, out);
    }
    void end(const engine::Timings& totals, std::string& out) override {
        if (usage_chunk_ == UsageChunk::own) {
            Json last = document({});
            add_totals(last, totals);
            append_event(last, out);
        }
        out += "data: [DONE]\n\n";
    }
    void write_error(const ApiError& error, std::string& out) override {
        append_event(error_json(error), out);
        out += "data: [DONE]\n\n";
    }
    std::string whole(const std::vector<ChoiceReply>& choices, const engine::Timings& totals) override {
        std::vector<Json> entries;
        for (size_t i = 0; i < choices.size(); ++i) {
            entries.push_back(choice(static_cast<int>(i), choices[i].content, choices[i].logprobs, choices[i].finish_reason));
        }
        Json out = document(std::move(entries));
        add_totals(out, totals);
        return dump_json(out);
    }

private:
    Json choice(int index, const std::string& text, const std::vector<engine::TokenLogprob>& logprobs, Json finish_reason) const {
        Json entry = {{"index", index}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", std::move(finish_reason)}};
        if (has_logprobs_) entry["logprobs"] = completion_logprobs_json(logprobs, tokenizer_);
        return entry;
    }
    Json document(std::vector<Json> choices) const {
        Json out = {{"id", head_.id},
                    {"object", "text_completion"},
                    {"created", head_.created},
                    {"model", head_.model},
                    {"system_fingerprint", head_.fingerprint},
                    {"choices", Json::array()}};
        for (Json& entry : choices) out["choices"].push_back(std::move(entry));
        return out;
    }
    static void add_totals(Json& out, const engine::Timings& totals) {
        out["usage"] = usage_json(totals);
        out["timings"] = timings_json(totals);
    }

    ReplyHead head_;
    UsageChunk usage_chunk_;
    bool has_logprobs_;
    const text::Tokenizer& tokenizer_;
};

}  // namespace

Outcome handle_completions(Service& service, const HandlerContext& context, const HttpRequest& request) {
    const ServerOptions& options = service.options();
    CompletionsRequest body;
    if (auto error = parse_completions(request.body, options.limits, *context, body)) return error_response(*error);
    service.warn_unknown_fields(request.path, body.unknown_fields);
    if (auto error = check_model(*context, body.fields.model)) return error_response(*error);
    identify_client(options, request, body.fields);
    GenerationPlan plan;
    if (auto error = submit_jobs(*context, body.fields, std::move(body.prompt), {}, plan.streams)) return error_response(*error);
    for (int i = 0; i < body.fields.n_choices; ++i) plan.decoders.emplace_back(*context->tokenizer, body.fields.stops);
    const ReplyHead head{new_id("cmpl-"), context->alias, "espalier-" + options.version, std::time(nullptr)};
    plan.writer = std::make_unique<CompletionsWriter>(head, body.fields, *context->tokenizer);
    plan.context = context;
    plan.mode = body.fields.is_stream ? ReplyMode::stream : ReplyMode::whole;
    plan.unsent_bytes_max = options.limits.unsent_bytes;
    plan.received = request.received;
    return std::make_unique<Generation>(std::move(plan), service.metrics(), service.log());
}

}  // namespace espalier::server
