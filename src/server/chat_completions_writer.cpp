#include "server/chat_completions_writer.h"

namespace espalier::server {
namespace {

Json chunk_head(const ReplyHead& head, const char* object) {
    return {{"id", head.id},
            {"object", object},
            {"created", head.created},
            {"model", head.model},
            {"system_fingerprint", head.fingerprint}};
}

Json delta_json(const text::OutputDelta& delta, const std::string& call_id) {
    using Kind = text::OutputDelta::Kind;
    switch (delta.kind) {
        case Kind::reasoning: return {{"reasoning_content", delta.text}};
        case Kind::content: return {{"content", delta.text}};
        case Kind::call_begin: {
            Json call = {{"index", delta.call_index},
                         {"id", call_id},
                         {"type", "function"},
                         {"function", {{"name", delta.call_name}, {"arguments", ""}}}};
            return {{"tool_calls", Json::array({std::move(call)})}};
        }
        case Kind::call_arguments: {
            Json call = {{"index", delta.call_index}, {"function", {{"arguments", delta.text}}}};
            return {{"tool_calls", Json::array({std::move(call)})}};
        }
        case Kind::call_end: break;
    }
    return Json::object();
}

Json message_json(const ChoiceReply& reply) {
    Json message = {{"role", "assistant"}, {"content", nullptr}};
    // Null beside calls; without any, many clients take the content for a string unasked.
    if (!reply.content.empty() || reply.calls.empty()) message["content"] = reply.content;
    if (!reply.reasoning.empty()) message["reasoning_content"] = reply.reasoning;
    if (!reply.calls.empty()) message["tool_calls"] = Json::array();
    for (const ReplyCall& call : reply.calls) {
        message["tool_calls"].push_back(
            {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return message;
}

}  // namespace

ChatCompletionsWriter::ChatCompletionsWriter(ReplyHead head, const RequestFields& fields, const text::Tokenizer& tokenizer)
    : head_(std::move(head)),
      usage_chunk_(fields.usage_chunk),
      n_choices_(fields.n_choices),
      has_logprobs_(fields.sampling.n_logprobs >= 0),
      tokenizer_(tokenizer) {}

Json ChatCompletionsWriter::chunk(int choice, Json delta, const std::vector<engine::TokenLogprob>& logprobs) const {
    Json entry = {{"index", choice}, {"delta", std::move(delta)}, {"finish_reason", nullptr}};
    if (!logprobs.empty()) entry["logprobs"] = chat_logprobs_json(logprobs, tokenizer_);
    Json out = chunk_head(head_, "chat.completion.chunk");
    out["choices"] = Json::array({std::move(entry)});
    return out;
}

void ChatCompletionsWriter::begin(std::string& out) {
    for (int choice = 0; choice < n_choices_; ++choice) {
        append_event(chunk(choice, {{"role", "assistant"}, {"content", ""}}, {}), out);
    }
}

void ChatCompletionsWriter::write_delta(const ReplyDelta& delta, std::string& out) {
    if (delta.delta.kind == text::OutputDelta::Kind::call_end) return;
    append_event(chunk(delta.choice, delta_json(delta.delta, delta.call_id), delta.logprobs), out);
}

void ChatCompletionsWriter::end_choice(int choice, const ChoiceReply& reply, const std::vector<engine::TokenLogprob>& logprobs,
                                       const engine::Timings* totals, std::string& out) {
    Json last = chunk(choice, Json::object(), logprobs);
    last["choices"][0]["finish_reason"] = reply.finish_reason;
    if (totals != nullptr && usage_chunk_ == UsageChunk::with_last) {
        last["usage"] = usage_json(*totals);
        last["timings"] = timings_json(*totals);
    }
    append_event(last, out);
}

void ChatCompletionsWriter::end(const engine::Timings& totals, std::string& out) {
    if (usage_chunk_ == UsageChunk::own) {
        Json last = chunk_head(head_, "chat.completion.chunk");
        last["choices"] = Json::array();
        last["usage"] = usage_json(totals);
        last["timings"] = timings_json(totals);
        append_event(last, out);
    }
    out += "data: [DONE]\n\n";
}

void ChatCompletionsWriter::write_error(const ApiError& error, std::string& out) {
    append_event(error_json(error), out);
    out += "data: [DONE]\n\n";
}

std::string ChatCompletionsWriter::whole(const std::vector<ChoiceReply>& choices, const engine::Timings& totals) {
    Json out = chunk_head(head_, "chat.completion");
    out["choices"] = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
        Json entry = {{"index", i}, {"message", message_json(choices[i])}, {"finish_reason", choices[i].finish_reason}};
        if (has_logprobs_) entry["logprobs"] = chat_logprobs_json(choices[i].logprobs, tokenizer_);
        out["choices"].push_back(std::move(entry));
    }
    out["usage"] = usage_json(totals);
    out["timings"] = timings_json(totals);
    return dump_json(out);
}

}  // namespace espalier::server
