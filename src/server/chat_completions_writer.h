// Chat completions as OpenAI clients read them. What the shapes owe to which client: content and reasoning never share a
// chunk (the benchmark client drops reasoning beside content); a call's first fragment has index, id, type and name (AI SDK);
// every chunk has `choices`; the role comes in the first chunk; usage and timings always come in the last chunk.
#pragma once

#include "server/reply_json.h"
#include "server/reply_writer.h"
#include "server/request_fields.h"

namespace espalier::server {

class ChatCompletionsWriter : public ReplyWriter {
public:
    // The tokenizer must outlive the writer.
    ChatCompletionsWriter(ReplyHead head, const RequestFields& fields, const text::Tokenizer& tokenizer);

    void begin(std::string& out) override;
    void write_delta(const ReplyDelta& delta, std::string& out) override;
    void end_choice(int choice, const ChoiceReply& reply, const std::vector<engine::TokenLogprob>& logprobs,
                    const engine::Timings* totals, std::string& out) override;
    void end(const engine::Timings& totals, std::string& out) override;
    void write_error(const ApiError& error, std::string& out) override;
    std::string whole(const std::vector<ChoiceReply>& choices, const engine::Timings& totals) override;

private:
    Json chunk(int choice, Json delta, const std::vector<engine::TokenLogprob>& logprobs) const;

    ReplyHead head_;
    UsageChunk usage_chunk_;
    int n_choices_;
    bool has_logprobs_;
    const text::Tokenizer& tokenizer_;
};

}  // namespace espalier::server
